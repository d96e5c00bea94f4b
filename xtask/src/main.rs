//! Repository chores that need an `if`.
fn main() {}
