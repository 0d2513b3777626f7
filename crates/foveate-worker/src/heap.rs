/// Smallest allocation that the system's allocator takes from the system, and gives back when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 1 << 20;

/// Makes the whole process give back memory of large allocations as soon as they are freed, so that memory follows what
/// a service holds. Without effect where the C library is not glibc.
///
/// glibc raises its own bound with each large allocation that is freed, up to 32 MiB. Downloads of strangers' sizes on
/// many threads then leave holes in its heaps, one for each thread, which grow with the number of messages.
pub fn return_large_allocations() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    // SAFETY: takes two integers, no memory. glibc locks its heap meanwhile, and a thread that allocates at the same
    // time uses the old bound or the new one; either is valid for memory that it frees later.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}
