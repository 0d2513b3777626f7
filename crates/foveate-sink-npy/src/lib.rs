//! sink-npy (under construction).
