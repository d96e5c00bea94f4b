//! The chosen numbers in a Rust source.
//!
//! ```text
//! const A: f64 = 0.5;                          one of A, as in every item that is const or static
//! const B: [(u8, f64); 2] = [(1, 0.1), ..];    each number of a table, a struct, a range or a call
//! const C: u64 = 3 * A + 1;                    of arithmetic only those that count as bare numbers
//! const D: u64 = 1 << 16;                      yet one, unless it names another constant
//! x > 3.0 && matches!(y, 4..=9)                each bare number
//! x.max(1.0), x * 1e9, x << 5, x & 0x1f        none: small ones, units, shifts, masks
//! x[3], x.3, [u8; 3], f::<3>(), enum { X = 3 } none: places, lengths, types, tags
//! ```

use std::fmt;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    AngleBracketedGenericArguments, Attribute, BinOp, Expr, Generics, Ident, ImplItem, Item, Lit,
    Type,
};

/// Numbers without a meaning of their own, and the nanosecond that keeps divisors above zero.
const SMALL: [f64; 4] = [0.0, 1.0, 2.0, 1e-9];
/// Factors and divisors between units: of seconds from nano to giga, and of bits per second.
const UNITS: [f64; 6] = [1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9];

/// One number and its place.
pub struct Number {
    /// Line of the source, from 1 on.
    line: usize,
    /// The constant that has the number; `None`: bare.
    pub name: Option<String>,
    /// The number as written. For a constant without another number, the call or the arithmetic that has
    /// it.
    text: String,
}

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, name, text } = self;
        match name {
            Some(name) => write!(out, "{line}  {name} = {text}"),
            None => write!(out, "{line}  bare {text}"),
        }
    }
}

/// All numbers of a source, tests left out, in its order. Fails where the source is no Rust.
pub fn of(source: &str) -> syn::Result<Vec<Number>> {
    let mut reader = Reader::default();
    reader.visit_file(&syn::parse_file(source)?);
    Ok(reader.found)
}

#[derive(Default)]
struct Reader {
    found: Vec<Number>,
    /// The constant whose initialiser is read.
    name: Option<String>,
    /// Arithmetic of a constant is read.
    is_operand: bool,
}

impl Reader {
    fn read_constant(&mut self, name: &Ident, value: &Expr) {
        let outer = self.name.replace(name.to_string());
        let first = self.found.len();
        self.visit_expr(value);
        self.name = outer;
        let is_short = matches!(value, Expr::Binary(_) | Expr::Call(_) | Expr::Unary(_));
        if let ([only], true) = (&mut self.found[first..], is_short) {
            only.text = text(value);
        }
    }

    fn add(&mut self, expression: &impl Spanned) {
        let line = expression.span().start().line;
        self.found.push(Number { line, name: self.name.clone(), text: text(expression) });
    }

    /// Reads numbers in the arguments of a macro that takes no list of expressions.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut dots = 0;
        for token in tokens {
            let is_dot = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
            match token {
                TokenTree::Literal(literal) if dots != 1 => self.visit_lit(&Lit::new(literal)),
                TokenTree::Group(group) => self.read_tokens(group.stream()),
                _ => {}
            }
            dots = if is_dot { dots + 1 } else { 0 };
        }
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a Item) {
        let attributes: &[Attribute] = match item {
            Item::Const(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) if item.ident == "tests" => return,
            Item::Mod(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Trait(item) => &item.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.read_constant(&item.ident, &item.expr);
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.read_constant(&item.ident, &item.expr);
    }

    fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
        self.read_constant(&item.ident, &item.expr);
    }

    fn visit_trait_item_const(&mut self, item: &'a syn::TraitItemConst) {
        if let Some((_, value)) = &item.default {
            self.read_constant(&item.ident, value);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        let is_whole = self.name.is_some() && !self.is_operand;
        let before = self.found.len();
        self.is_operand |= is_whole;
        let [left, right] = [&binary.left, &binary.right];
        match binary.op {
            BinOp::Shl(_) | BinOp::ShlAssign(_) | BinOp::Shr(_) | BinOp::ShrAssign(_) => {
                self.visit_expr(left);
            }
            BinOp::Mul(_) | BinOp::MulAssign(_) | BinOp::Div(_) | BinOp::DivAssign(_) => {
                let sides = [left, right].into_iter().filter(|side| !is_unit(side));
                sides.for_each(|side| self.visit_expr(side));
            }
            _ => [left, right].into_iter().for_each(|side| self.visit_expr(side)),
        }
        self.is_operand &= !is_whole;
        if is_whole && self.found.len() == before && Content::of(binary).is_of_numbers_alone() {
            self.add(binary);
        }
    }

    fn visit_expr_index(&mut self, place: &'a syn::ExprIndex) {
        self.visit_expr(&place.expr);
        if !is_literal(&place.index) {
            self.visit_expr(&place.index);
        }
    }

    fn visit_expr_repeat(&mut self, array: &'a syn::ExprRepeat) {
        self.visit_expr(&array.expr);
    }

    fn visit_lit(&mut self, literal: &'a Lit) {
        let is_small = value(literal).is_some_and(|value| SMALL.contains(&value));
        let is_value = self.name.is_some() && !self.is_operand;
        if is_number(literal) && (is_value || !is_small) {
            self.add(literal);
        }
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let list = Group::new(Delimiter::Bracket, call.tokens.clone());
        match syn::parse2::<Expr>(TokenTree::from(list).into()) {
            Ok(list) => Reader::visit_expr(self, &list),
            Err(_) => self.read_tokens(call.tokens.clone()),
        }
    }

    fn visit_attribute(&mut self, _: &'a Attribute) {}

    fn visit_type(&mut self, _: &'a Type) {}

    fn visit_generics(&mut self, _: &'a Generics) {}

    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'a AngleBracketedGenericArguments) {}

    fn visit_variant(&mut self, _: &'a syn::Variant) {}
}

/// Kinds of operands in an arithmetic expression.
#[derive(Default)]
struct Content {
    has_number: bool,
    /// A constant is named; functions are none.
    has_name: bool,
}

impl Content {
    fn of(binary: &syn::ExprBinary) -> Self {
        let mut content = Self::default();
        content.visit_expr_binary(binary);
        content
    }

    fn is_of_numbers_alone(&self) -> bool {
        self.has_number && !self.has_name
    }
}

impl<'a> Visit<'a> for Content {
    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        call.args.iter().for_each(|it| self.visit_expr(it));
    }

    fn visit_expr_path(&mut self, _: &'a syn::ExprPath) {
        self.has_name = true;
    }

    fn visit_lit(&mut self, literal: &'a Lit) {
        self.has_number |= is_number(literal);
    }

    fn visit_type(&mut self, _: &'a Type) {}
}

/// Whether `literal` is a number, and no mask.
fn is_number(literal: &Lit) -> bool {
    let is_mask = matches!(literal, Lit::Int(number) if number.to_string().starts_with("0x"));
    value(literal).is_some() && !is_mask
}

fn value(literal: &Lit) -> Option<f64> {
    match literal {
        Lit::Int(number) => number.base10_digits().parse().ok(),
        Lit::Float(number) => number.base10_digits().parse().ok(),
        _ => None,
    }
}

fn is_unit(expression: &Expr) -> bool {
    let Expr::Lit(literal) = expression else { return false };
    value(&literal.lit).is_some_and(|value| UNITS.contains(&value))
}

/// Whether `expression` is a literal, or a range between such.
fn is_literal(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(_) => true,
        Expr::Range(range) => {
            [&range.start, &range.end].into_iter().flatten().all(|end| is_literal(end))
        }
        _ => false,
    }
}

/// `expression` as written, in one line.
fn text(expression: &impl Spanned) -> String {
    let text = expression.span().source_text().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of `source`, each as `--list` shows it.
    fn shown(source: &str) -> Vec<String> {
        of(source).unwrap().iter().map(Number::to_string).collect()
    }

    /// The bare numbers in a function with this body.
    fn bare(body: &str) -> Vec<String> {
        let found = shown(&format!("fn f() {{ {body} }}"));
        found.iter().map(|it| it.replacen("1  bare ", "", 1)).collect()
    }

    /// How many numbers a constant with this initialiser has.
    fn count(initialiser: &str) -> usize {
        of(&format!("const A: T = {initialiser};")).unwrap().len()
    }

    #[test]
    fn every_kind_of_constant_counts() {
        let source = "const A: f64 = 0.5;\nstatic B: u32 = 3;\nimpl X { const C: u8 = 4; }\n\
                      trait T { const D: u8 = 5; const E: u8; }\n\
                      fn f() { const F: u8 = 6; }\nmod m { const G: i8 = -7; }";
        let expected = ["1  A = 0.5", "2  B = 3", "3  C = 4", "4  D = 5", "5  F = 6", "6  G = -7"];
        assert_eq!(shown(source), expected);
    }

    #[test]
    fn small_ones_and_units_count_as_constants() {
        for number in ["0.0", "1", "2.0", "1e-9", "1000", "(-1)", "&2"] {
            assert_eq!(count(number), 1, "{number}");
        }
    }

    #[test]
    fn tables_structs_ranges_and_calls_count_each() {
        assert_eq!(count("[(4, 10e-3), (8, 0.0), (OTHER, 0.3e-3)]"), 5);
        assert_eq!(count("[Row { a: 1, b: Some(0.5) }, Row { a: 2, ..DEFAULT }]"), 3);
        assert_eq!(count("0.6..=2.5"), 2);
        assert_eq!(count("Rate::from_bits(100_000)..=Rate::from_bits(1_000_000)"), 2);
        assert_eq!(count("Param::new(\"x\", \"3 of 4\").or(0.5)"), 1);
    }

    #[test]
    fn lengths_of_arrays_do_not_count() {
        assert_eq!(count("[0.5; 16]"), 1);
        assert_eq!(bare("let a: [u8; 16] = [7; 16];"), ["7"]);
    }

    #[test]
    fn arithmetic_counts_what_was_chosen() {
        for (initialiser, expected) in [
            ("Duration::from_millis(50)", 1),
            ("1 << 16", 1),
            ("1 + 1", 1),
            ("0.002 * 10.0 / 3.0", 3),
            ("2 * WINDOW / 64", 1),
            ("[1 << 16, 2 * 3 + OTHER, 1.0 - OTHER]", 2),
        ] {
            assert_eq!(count(initialiser), expected, "{initialiser}");
        }
        assert_eq!(shown("const A: u8 =\n1\n  << 4;"), ["2  A = 1 << 4"]);
        assert_eq!(shown("const A: T = S { a: 3 };"), ["1  A = 3"]);
    }

    #[test]
    fn constants_made_of_others_do_not_count() {
        for initialiser in ["OTHER", "1.0 - OTHER", "1 << BITS", "A as u64 * Self::price(1)"] {
            assert_eq!(count(initialiser), 0, "{initialiser}");
        }
        assert_eq!(count("size_of::<[u8; 4]>() + size_of::<u32>()"), 0);
    }

    #[test]
    fn what_is_no_number_does_not_count() {
        for initialiser in ["\"3\"", "*b\"FBAY\"", "b'3'", "'3'", "true", "0x3fff"] {
            assert_eq!(count(initialiser), 0, "{initialiser}");
        }
    }

    #[test]
    fn bare_numbers_count_but_for_small_ones() {
        assert_eq!(
            bare("g(3, 0.9); if x > -4 { y = 5 } else { 0.1 * x };"),
            ["3", "0.9", "4", "5", "0.1"]
        );
        assert_eq!(bare("g(0, 1, 2, 0.0, 1.0, 2.0, -1, 1u64, 2_f64, 1e-9)"), [""; 0]);
    }

    #[test]
    fn units_are_factors_and_divisors() {
        assert_eq!(bare("x * 1e9 / 1000.0; 1_000_000 * x; x *= 1e6; x /= 1e-3;"), [""; 0]);
        assert_eq!(bare("x.max(1e-3); x + 1000; x * 1500; x / 8;"), ["1e-3", "1000", "1500", "8"]);
    }

    #[test]
    fn shifts_and_masks_do_not_count() {
        assert_eq!(bare("x << 16 | x >> (64 - n); x >>= 5; x & 0x1f;"), [""; 0]);
        assert_eq!(bare("3 << n; x & 15"), ["3", "15"]);
    }

    #[test]
    fn places_in_tuples_and_arrays_do_not_count() {
        assert_eq!(bare("x.3; x.3.4; x[5]; x[12..14]; x[..=6]; y![x.3, x.3.4, x[5]];"), [""; 0]);
        assert_eq!(bare("x[n + 3]; x[4].g(7)"), ["3", "7"]);
    }

    #[test]
    fn patterns_count_as_bare() {
        let body = "match x { 0 | 3 => a, 4..=9 => b, -5 => c, 0x30 => d, _ => e }";
        assert_eq!(bare(body), ["3", "4", "9", "-5"]);
        assert_eq!(bare("if let Some(7) = x {}"), ["7"]);
    }

    #[test]
    fn what_macros_are_handed_counts() {
        assert_eq!(bare("assert!(x < 3, \"of 4: {:5}\", 6);"), ["3", "6"]);
        assert_eq!(bare("matches!(x.7, 3..=4 if x.0 > 1 << 5)"), ["3", "4", "5"]);
    }

    #[test]
    fn types_attributes_and_tags_do_not_count() {
        let source = "#[repr(align(64))] struct A<const N: usize = 3>([u8; 4], B<5>);\n\
                      enum C { D = 3, E = 4 }\nfn f() -> [u8; 6] { g::<7>(x as B<8>) }";
        assert_eq!(shown(source), [""; 0]);
    }

    #[test]
    fn what_only_tests_have_is_skipped() {
        let source = "#[cfg(test)] const A: u8 = 3;\n#[cfg(test)] mod more { const A: u8 = 3; }\n\
                      mod tests { const A: u8 = 3; }\n#[cfg(test)] fn f() { 3 }\n\
                      impl X { #[cfg(test)] const A: u8 = 3; #[cfg(test)] fn f() { 3 } }\n\
                      #[cfg(test)] impl Y { const A: u8 = 3; }\n#[cfg(not(test))] const B: u8 = 4;";
        assert_eq!(shown(source), ["7  B = 4"]);
    }
}
