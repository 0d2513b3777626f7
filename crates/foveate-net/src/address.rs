//! Which addresses strangers may name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Blocks of IPv4 that are not the public internet: the whole of IANA's special-purpose registry, whether it calls a
/// block reachable or not, and two that it does not have.
const SPECIAL_V4: [(Ipv4Addr, u32, &str); 19] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a carrier's shared"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "a documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "a reserved"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "a benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "a documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "a documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved"),
    // Looks public, but every Azure machine finds its host's services there.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's metadata"),
];

/// What IPv6 has outside of global unicast (2000::/3), to say what it is: all of it is refused.
const SPECIAL_V6: [(Ipv6Addr, u32, &str); 6] = [
    (Ipv6Addr::UNSPECIFIED, 128, "an unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "an IPv4-mapped"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast"),
];

/// Blocks of global unicast that are not the public internet.
const SPECIAL_UNICAST: [(Ipv6Addr, u32, &str); 5] = [
    // Teredo, benchmarking, ORCHID and others.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a reserved"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "a documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "a reserved"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "a documentation"),
];

/// What networks that have only IPv6 give for hosts that have only IPv4; the IPv4 address is in the last 32 bits.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
const GLOBAL_UNICAST: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);

/// What kind of address it is, where it is none of the public internet.
pub(crate) fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let within =
        |(block, bits, _): &&(Ipv4Addr, u32, _)| (address.to_bits() ^ block.to_bits()).leading_zeros() >= *bits;
    SPECIAL_V4.iter().find(within).map(|(_, _, kind)| *kind)
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    if within_v6(address, NAT64, 96) {
        let [.., a, b, c, d] = address.octets();
        return special_v4(Ipv4Addr::new(a, b, c, d));
    }
    let of = |blocks: &[(Ipv6Addr, u32, &'static str)]| {
        blocks.iter().find(|(block, bits, _)| within_v6(address, *block, *bits)).map(|(_, _, kind)| *kind)
    };
    match within_v6(address, GLOBAL_UNICAST, 3) {
        true => of(&SPECIAL_UNICAST),
        false => of(&SPECIAL_V6).or(Some("a reserved")),
    }
}

fn within_v6(address: Ipv6Addr, block: Ipv6Addr, bits: u32) -> bool {
    (address.to_bits() ^ block.to_bits()).leading_zeros() >= bits
}
