//! Single values of a configuration file, and errors that name their place.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use forebay_core::bundle::NAME_MAX;
use forebay_core::bundle::sendbox::RATES;
use forebay_core::spec::SpecError;
use forebay_core::units::Rate;
use ipnet::IpNet;
use toml::Spanned;

use super::{ConfigError, DEFAULT_PORT, Role};

/// The text under check, to turn positions into lines.
pub(super) struct Source<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    fn line_of(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset.min(self.text.len())]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
    }

    pub(super) fn at(&self, span: &Range<usize>, problem: String) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line: Some(self.line_of(span.start)), problem }
    }

    /// An error of one value.
    pub(super) fn value(
        &self,
        span: &Range<usize>,
        key: &str,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> ConfigError {
        self.at(span, format!("{key} = {value}: allowed is {allowed}"))
    }

    /// An error of the TOML reader, with the line it is about: that line names key and value.
    pub(super) fn syntax(&self, error: &toml::de::Error) -> ConfigError {
        let message = error.message().trim().replace('\n', ", ");
        let Some(span) = error.span() else {
            return ConfigError { file: self.file.to_owned(), line: None, problem: message };
        };
        let line = self.line_of(span.start);
        let text = self.text.lines().nth(line - 1).unwrap_or_default().trim();
        // A line of a hostile file may be long: enough to recognise it will do.
        let shown: String = text.chars().take(80).collect();
        self.at(&span, format!("`{shown}`: {message}"))
    }

    pub(super) fn spec(&self, span: &Range<usize>, key: &str, error: &SpecError) -> ConfigError {
        // A parameter of an inline table has no position of its own: look for it after its start.
        let within =
            self.text.get(span.clone()).and_then(|text| text.find(&error.key)).unwrap_or(0);
        self.at(&(span.start + within..span.end), format!("{key}: {error}"))
    }

    /// Reads a text value of type `T`.
    pub(super) fn parse<T: FromStr>(
        &self,
        key: &str,
        text: &Spanned<String>,
        allowed: &str,
    ) -> Result<T, ConfigError> {
        let value = text.get_ref();
        value.parse().map_err(|_| self.value(&text.span(), key, format_args!("{value:?}"), allowed))
    }
}

pub(super) fn name(
    source: &Source<'_>,
    key: &str,
    text: &Spanned<String>,
) -> Result<String, ConfigError> {
    let value = text.get_ref();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if value.is_empty() || value.len() > NAME_MAX || !value.chars().all(is_plain) {
        let allowed = format!("1 to {NAME_MAX} letters, digits, \".\", \"_\" or \"-\"");
        return Err(source.value(&text.span(), key, format_args!("{value:?}"), allowed));
    }
    Ok(value.clone())
}

/// A name the kernel accepts for a device (`dev_valid_name`, net/core/dev.c).
pub(super) fn device(
    source: &Source<'_>,
    key: &str,
    text: &Spanned<String>,
) -> Result<String, ConfigError> {
    let value = text.get_ref();
    let is_bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if value.is_empty()
        || value.len() >= libc::IFNAMSIZ
        || value == "."
        || value == ".."
        || value.contains(is_bad)
    {
        let allowed = "a network device's name, 1 to 15 characters";
        return Err(source.value(&text.span(), key, format_args!("{value:?}"), allowed));
    }
    Ok(value.clone())
}

pub(super) fn address(
    source: &Source<'_>,
    key: &str,
    text: &Spanned<String>,
) -> Result<SocketAddr, ConfigError> {
    let value = text.get_ref();
    let parsed = value
        .parse::<SocketAddr>()
        .or_else(|_| value.parse::<IpAddr>().map(|address| SocketAddr::new(address, DEFAULT_PORT)));
    match parsed {
        Ok(address)
            if address.port() != 0
                && !address.ip().is_unspecified()
                && !address.ip().is_multicast() =>
        {
            Ok(address)
        }
        _ => {
            let allowed = "one host's IP address, such as \"10.1.3.1\", \"10.1.3.1:61475\" or \
                           \"[2001:db8::1]:61475\"";
            Err(source.value(&text.span(), key, format_args!("{value:?}"), allowed))
        }
    }
}

pub(super) fn prefixes(
    source: &Source<'_>,
    key: &str,
    list: &[Spanned<String>],
) -> Result<Vec<IpNet>, ConfigError> {
    let mut prefixes = Vec::with_capacity(list.len());
    for text in list {
        let allowed = "a prefix such as \"10.1.2.0/24\" or \"2001:db8:2::/48\"";
        let prefix: IpNet = source.parse(key, text, allowed)?;
        if prefix != prefix.trunc() {
            let value = format_args!("{:?}", text.get_ref());
            let allowed = format!("a prefix without host bits: \"{}\"", prefix.trunc());
            return Err(source.value(&text.span(), key, value, allowed));
        }
        prefixes.push(prefix);
    }
    Ok(prefixes)
}

/// A path, relative to the folder of the configuration file.
pub(super) fn path(
    source: &Source<'_>,
    key: &str,
    text: &Spanned<String>,
) -> Result<PathBuf, ConfigError> {
    let value = text.get_ref();
    if value.is_empty() || value.contains('\0') {
        return Err(source.value(&text.span(), key, format_args!("{value:?}"), "a path"));
    }
    Ok(source.file.parent().unwrap_or(Path::new("")).join(value))
}

pub(super) fn control_path(
    source: &Source<'_>,
    role: Role,
    text: Option<&Spanned<String>>,
) -> Result<PathBuf, ConfigError> {
    let Some(text) = text else {
        return Ok(PathBuf::from(format!("/run/forebay/{role}.sock")));
    };
    let path = path(source, "box.control", text)?;
    // sockaddr_un.sun_path holds 108 bytes with its terminator.
    if path.as_os_str().len() > 107 {
        let value = format_args!("{:?}", text.get_ref());
        return Err(source.value(
            &text.span(),
            "box.control",
            value,
            "a path of at most 107 bytes",
        ));
    }
    Ok(path)
}

pub(super) fn rate(
    source: &Source<'_>,
    key: &str,
    text: Option<&Spanned<String>>,
) -> Result<Option<Rate>, ConfigError> {
    text.map(|text| required_rate(source, key, text)).transpose()
}

pub(super) fn required_rate(
    source: &Source<'_>,
    key: &str,
    text: &Spanned<String>,
) -> Result<Rate, ConfigError> {
    let allowed = format!("a rate from {} to {}, such as \"96Mbit/s\"", RATES.start(), RATES.end());
    let rate: Rate = source.parse(key, text, &allowed)?;
    if !RATES.contains(&rate) {
        let value = format_args!("{:?}", text.get_ref());
        return Err(source.value(&text.span(), key, value, allowed));
    }
    Ok(rate)
}
