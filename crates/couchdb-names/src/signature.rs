//! The signature of a view index.

/// A view index's signature: the MD5 that names its file. Shown as 32 hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(pub [u8; 16]);

impl std::fmt::Display for Signature {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl std::str::FromStr for Signature {
    type Err = ParseSignatureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseSignatureError { text: text.to_owned() };
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused());
        }
        u128::from_str_radix(text, 16).map(|value| Self(value.to_be_bytes())).map_err(|_| refused())
    }
}

/// Why a text is not a signature.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a view signature: write 32 hex digits")]
pub struct ParseSignatureError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_round_trip() {
        let text = "0f045e3b41d71d93aaa32f23021ba536";
        assert_eq!(text.parse::<Signature>().unwrap().to_string(), text);
        for bad in
            ["", "0f", "zz045e3b41d71d93aaa32f23021ba536", "+f045e3b41d71d93aaa32f23021ba536"]
        {
            assert!(bad.parse::<Signature>().is_err(), "{bad}");
        }
    }
}
