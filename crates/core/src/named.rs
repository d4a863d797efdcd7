//! Enums whose variants have one name each: variants, names and the list of all stand once.

/// Makes an enum with `ALL`, its variants in their order, `name`, what each one is called in
/// files, tables and JSON, and `about`, its description, which lists show to people. A variant
/// may have a number as well.
///
/// ```
/// homenode_core::named! {
///     /// How it is.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq)]
///     pub enum Heat {
///         /// Accessed.
///         Hot => "hot",
///         /// Not accessed.
///         Cold => "cold",
///     }
/// }
/// assert_eq!(Heat::ALL.map(Heat::name), ["hot", "cold"]);
/// assert_eq!(Heat::Cold.about(), "Not accessed.");
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$about:meta])*
        $vis:vis enum $Enum:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[default $($default:tt)*])?
                $Variant:ident $(= $number:literal)? => $name:literal,
            )*
        }
    ) => {
        $(#[$about])*
        $vis enum $Enum {
            $($(#[doc = $doc])* $(#[default $($default)*])? $Variant $(= $number)?,)*
        }
        impl $Enum {
            /// All of them, in their order.
            $vis const ALL: [Self; [$($name),*].len()] = [$(Self::$Variant),*];
            /// The name of each.
            $vis const fn name(self) -> &'static str { match self { $(Self::$Variant => $name,)* } }
            /// What each is, in a sentence.
            #[allow(dead_code)]
            $vis const fn about(self) -> &'static str {
                match self { $(Self::$Variant => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}
