//! The part of a datapath that stays in a BPF file system when its process ends.
//!
//! ```text
//! FOLDER/         locked by the process that uses it
//!   5f3c01d2/     the layout of the maps; all that is kept, or nothing
//!     link records wakes slots modes free_slots counts owners holders
//! ```
//! A process assembles a set in another folder and renames it. If the process dies meanwhile, its
//! successor finds no incomplete set.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapHandle, libbpf_sys};

use crate::Error;

/// The maps that are kept, by the names of their files.
pub(super) const MAPS: [&str; 8] =
    ["records", "wakes", "slots", "modes", "free_slots", "counts", "owners", "holders"];
/// The file of the link, next to the maps.
const LINK: &str = "link";
/// Folder in which a process assembles a set.
const STAGING: &str = "unfinished";

/// Fingerprint of the headers that define how programs use the maps. Older programs go on writing and
/// reading the maps as long as connections use them. Covers the declarations, how records are written,
/// how decisions are read and their meaning, and how slots change hands, but no comments.
const LAYOUT: u32 = {
    let headers: [&[u8]; 7] = [
        include_bytes!("../../bpf/tcp_flow.h"),
        include_bytes!("../../bpf/tcp_maps.h"),
        include_bytes!("../../bpf/tcp_record.h"),
        include_bytes!("../../bpf/tcp_decision.h"),
        include_bytes!("../../bpf/tcp_law.h"),
        include_bytes!("../../bpf/tcp_share.h"),
        include_bytes!("../../bpf/tcp_slot.h"),
    ];
    let (mut hash, mut at) = (FNV_BASIS, 0);
    while at < headers.len() {
        hash = fingerprint(hash, headers[at]);
        at += 1;
    }
    hash
};

/// First value of FNV-1a with 32 bits (Fowler, Noll and Vo).
const FNV_BASIS: u32 = 0x811c_9dc5;
/// Factor of FNV-1a with 32 bits (Fowler, Noll and Vo).
const FNV_PRIME: u32 = 0x0100_0193;

/// Continues `hash` with the text of a C header, without comments and blanks.
const fn fingerprint(mut hash: u32, text: &[u8]) -> u32 {
    let mut at = 0;
    while at < text.len() {
        if text[at] == b'/' && at + 1 < text.len() && text[at + 1] == b'*' {
            at += 2;
            while at + 1 < text.len() && !(text[at] == b'*' && text[at + 1] == b'/') {
                at += 1;
            }
            at += 2;
            continue;
        }
        if !text[at].is_ascii_whitespace() {
            hash = (hash ^ text[at] as u32).wrapping_mul(FNV_PRIME);
        }
        at += 1;
    }
    hash
}

/// A folder for the pins of one name, with this process as its only user.
#[derive(Debug)]
pub(super) struct Pins {
    folder: PathBuf,
    /// The kernel ends the lock with the process, however the process ends.
    _lock: File,
    is_kept: bool,
}

impl Pins {
    /// Takes `folder`, which is made where it is missing. Removes an unfinished set.
    ///
    /// Errors: another process uses it; the set in it has another layout or is not whole; other users
    /// could put something there.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Pin { path: folder.to_path_buf(), source };
        let mut made = DirBuilder::new();
        made.recursive(true).mode(0o755).create(folder).map_err(failed)?;
        check_owner(folder)?;
        let lock = File::open(folder).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::PinsInUse { path: folder.to_path_buf() },
            TryLockError::Error(source) => failed(source),
        })?;
        let mut pins = Self { folder: folder.to_path_buf(), _lock: lock, is_kept: false };
        let foreign = || Error::PinnedLayout { path: folder.to_path_buf() };
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            match entry.file_name().to_str() {
                Some(STAGING) => remove(&entry.path())?,
                Some(name) if name == layout() => pins.is_kept = true,
                _ => return Err(foreign()),
            }
        }
        let set = pins.set();
        if pins.is_kept && !files().all(|name| set.join(name).exists()) {
            return Err(foreign());
        }
        Ok(pins)
    }

    /// The pinned map of this name, if a set is kept.
    pub(super) fn kept_map(&self, name: &str) -> Option<PathBuf> {
        self.is_kept.then(|| self.set().join(name))
    }

    /// The pinned link, if a set is kept.
    pub(super) fn kept_link(&self) -> Option<PathBuf> {
        self.kept_map(LINK)
    }

    /// Keeps `link` and `maps`, in the order of [`MAPS`], from now on.
    pub(super) fn keep(
        &mut self,
        link: BorrowedFd<'_>,
        maps: &[MapHandle; MAPS.len()],
    ) -> Result<(), Error> {
        if self.is_kept {
            return Ok(());
        }
        let staging = self.folder.join(STAGING);
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| Error::Pin { path, source }
        };
        fs::create_dir(&staging).map_err(failed(&staging))?;
        let pinned = pin(link, &staging.join(LINK)).and_then(|()| {
            let mut maps = MAPS.iter().zip(maps);
            maps.try_for_each(|(name, map)| pin(map.as_fd(), &staging.join(name)))
        });
        let set = self.set();
        let kept = pinned.and_then(|()| fs::rename(&staging, &set).map_err(failed(&set)));
        match kept {
            Ok(()) => self.is_kept = true,
            // The first error is the one to report.
            Err(_) => drop(remove(&staging)),
        }
        kept
    }

    /// Removes the pins and the folder.
    pub(super) fn give_up(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.is_kept) {
            remove(&self.set())?;
            // Other programs' files may have come.
            let _ = fs::remove_dir(&self.folder);
        }
        Ok(())
    }

    fn set(&self) -> PathBuf {
        self.folder.join(layout())
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // Does nothing to a folder with something in it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A BPF file system lets every user make folders, and maps found here are believed to be ours. So the
/// folder must be ours, and no other user may be able to move it away.
fn check_owner(folder: &Path) -> Result<(), Error> {
    /// Mode bits: group or other users may write.
    const OTHERS_WRITE: u32 = 0o022;
    /// Mode bit: only the owner of an entry may move it (inode(7)).
    const STICKY: u32 = 0o1000;
    // SAFETY: no arguments.
    let us = unsafe { libc::geteuid() };
    let exposed = |path: &Path| Error::PinsExposed { path: path.to_path_buf() };
    let stat = |path: &Path| fs::metadata(path).map_err(|_| exposed(path));
    let own = stat(folder)?;
    if own.uid() != us || own.mode() & OTHERS_WRITE != 0 {
        return Err(exposed(folder));
    }
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    let Some(above) = above else { return Ok(()) };
    let other = stat(above)?;
    let is_shared = other.mode() & OTHERS_WRITE != 0 && other.mode() & STICKY == 0;
    if is_shared || ![0, us].contains(&other.uid()) { Err(exposed(above)) } else { Ok(()) }
}

fn layout() -> String {
    format!("{LAYOUT:08x}")
}

/// All parts of a set.
fn files() -> impl Iterator<Item = &'static str> {
    MAPS.into_iter().chain([LINK])
}

/// Removes a set, whole or not.
fn remove(set: &Path) -> Result<(), Error> {
    let failed = |path: &Path, source| Error::Pin { path: path.to_path_buf(), source };
    for path in files().map(|name| set.join(name)) {
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&path, source));
            }
            _ => {}
        }
    }
    fs::remove_dir(set).map_err(|source| failed(set, source))
}

fn pin(object: BorrowedFd<'_>, path: &Path) -> Result<(), Error> {
    let file = c_path(path);
    // SAFETY: an open descriptor and a terminated string, which outlive the call.
    match -unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), file.as_ptr()) } {
        0 => Ok(()),
        errno => Err(Error::Pin {
            path: path.to_path_buf(),
            source: io::Error::from_raw_os_error(errno),
        }),
    }
}

/// A path as the kernel takes it.
pub(super) fn c_path(path: &Path) -> CString {
    // A path of the file system holds no zero byte; an empty one is refused by the kernel.
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_hash_ignores_comments() {
        let of = |text: &str| fingerprint(FNV_BASIS, text.as_bytes());
        // The published values of FNV-1a.
        assert_eq!((of(""), of("a"), of("foobar")), (FNV_BASIS, 0xe40c_292c, 0xbf9c_f968));
        let one = of("struct slot {\n\t__u32 count; /* odd */\n};\n");
        assert_eq!(one, of("/* What * it is. */ struct slot { __u32 count; };"));
        assert_ne!(one, of("struct slot { __u64 count; };"));
        assert_ne!(one, of("struct slot { __u32 counts; };"));
    }

    #[test]
    fn pin_folder_is_exclusive_and_removed_when_empty() {
        let folder = std::env::temp_dir().join(format!("forebay-pins-{}", std::process::id()));
        let pins = Pins::open(&folder).unwrap();
        let refused = Pins::open(&folder).unwrap_err();
        assert!(matches!(refused, Error::PinsInUse { .. }));
        let text = refused.to_string();
        assert!(text.contains(folder.to_str().unwrap()) && !text.contains('\n'), "{text}");
        drop(pins);
        assert!(!folder.exists());
    }

    #[test]
    fn pin_folder_writable_by_other_users_is_refused() {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt;

        let above = std::env::temp_dir().join(format!("forebay-exposed-{}", std::process::id()));
        let folder = above.join("name");
        fs::create_dir_all(&folder).unwrap();
        for (exposed, mode) in [(&folder, 0o777), (&folder, 0o775), (&above, 0o777)] {
            fs::set_permissions(exposed, Permissions::from_mode(mode)).unwrap();
            let error = Pins::open(&folder).unwrap_err();
            assert!(matches!(&error, Error::PinsExposed { path } if path == exposed), "{error}");
            fs::set_permissions(exposed, Permissions::from_mode(0o755)).unwrap();
        }
        // Like temporary folders and BPF file systems: every user may write, and remove only files of
        // its own.
        fs::set_permissions(&above, Permissions::from_mode(0o1777)).unwrap();
        drop(Pins::open(&folder).unwrap());
        fs::remove_dir(&above).unwrap();
    }

    #[test]
    fn pins_of_another_version_are_refused_with_remedy() {
        let folder = std::env::temp_dir().join(format!("forebay-layout-{}", std::process::id()));
        // As before layouts had a number; another layout; a set that misses a file.
        for strange in ["records", "00000000", &layout()] {
            fs::create_dir_all(folder.join(strange)).unwrap();
            let text = Pins::open(&folder).unwrap_err().to_string();
            assert!(text.contains(&format!("rm -r {}", folder.display())), "{text}");
            assert!(!text.contains('\n'), "{text}");
            assert!(folder.join(strange).exists(), "nothing is touched");
            fs::remove_dir_all(&folder).unwrap();
        }
    }
}
