//! The two forms that names and numbers take on the boundary: handles, and sets of values that may grow.

/// Declares a 64-bit handle. 0 names nothing.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u64);
        impl $name {
            /// The handle that names nothing; on GPUs the null stream.
            pub const NULL: Self = Self(0);
        }
    };
}
pub(super) use handle;

/// Declares a set of 32-bit values: any number crosses, and one that is not in the set is refused by its name.
macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:expr,)+ }) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$vdoc])* pub const $variant: Self = Self($value);)+
            /// The name of the value, or `unknown` for one from a newer version.
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($variant),)+ _ => "unknown" }
            }
        }
    };
}
pub(super) use open_enum;
