//! encode-candle (under construction).
