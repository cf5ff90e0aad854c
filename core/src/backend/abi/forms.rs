//! Macros for the two representations of names and numbers on the boundary: handles, and sets of values that may
//! grow.

/// Declares a 64-bit handle; 0 is the null handle.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u64);
        impl $name {
            /// The null handle; as a stream, the null stream.
            pub const NULL: Self = Self(0);
        }
    };
}
pub(super) use handle;

/// Declares a set of 32-bit values. Any number can cross the table; its user refuses a value that it does not know.
macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:expr,)+ }) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$vdoc])* pub const $variant: Self = Self($value);)+
            /// Returns the value's name, or `unknown` for a value that this version does not know.
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($variant),)+ _ => "unknown" }
            }
        }
    };
}
pub(super) use open_enum;
