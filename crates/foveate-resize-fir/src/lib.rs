//! resize-fir (under construction).
