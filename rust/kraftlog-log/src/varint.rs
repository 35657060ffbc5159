//! (varint)
