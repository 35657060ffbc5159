//! (crc)
