//! Compiles the C of the algorithm; one more line for each further file.

fn main() {
    forebay_capi::compile("my_cc.c");
}
