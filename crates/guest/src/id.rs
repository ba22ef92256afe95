/// A fresh 128-bit random id as 32 lower-case hexadecimal digits.
pub(crate) fn fresh() -> String {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("Linux always has a random source");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
