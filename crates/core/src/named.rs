//! Enums with names for their variants in files and messages.

/// Declares an enum and the name of each variant: `Variant => "name"`, or `Variant = 1 => "name"` with a number.
/// `ALL` has the variants in the order of their declaration, and `name` returns the name of a variant.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Enum:ident {
            $($(#[$of:meta])* $variant:ident $(= $number:literal)? => $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        $vis enum $Enum {
            $($(#[$of])* $variant $(= $number)?,)+
        }

        impl $Enum {
            /// All values, as declared.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in files and messages.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}
