//! Who is there: processes below /proc.
