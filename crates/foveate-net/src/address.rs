//! Which IP addresses untrusted URLs may lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 blocks outside of the public internet: IANA's whole special-purpose registry, reachable blocks included, and
/// two more.
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
    // A public address, but Azure serves its metadata there.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's metadata"),
];

/// Names of IPv6 blocks outside of global unicast (2000::/3), which are all refused.
const SPECIAL_V6: [(Ipv6Addr, u32, &str); 6] = [
    (Ipv6Addr::UNSPECIFIED, 128, "an unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "an IPv4-mapped"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast"),
];

/// Global unicast blocks outside of the public internet.
const SPECIAL_UNICAST: [(Ipv6Addr, u32, &str); 5] = [
    // Teredo, benchmarking, ORCHID and others.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a reserved"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "a documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "a reserved"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "a documentation"),
];

/// The NAT64 prefix, by which IPv6 networks reach IPv4 hosts; the last 32 bits are the IPv4 address.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
const GLOBAL_UNICAST: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);

/// The kind of an address outside of the public internet, or `None` for a public one.
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
    let is_unicast = within_v6(address, GLOBAL_UNICAST, 3);
    let blocks = if is_unicast { &SPECIAL_UNICAST[..] } else { &SPECIAL_V6[..] };
    for &(block, bits, kind) in blocks {
        if within_v6(address, block, bits) {
            return Some(kind);
        }
    }
    (!is_unicast).then_some("a reserved")
}

fn within_v6(address: Ipv6Addr, block: Ipv6Addr, bits: u32) -> bool {
    (address.to_bits() ^ block.to_bits()).leading_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// IANA's special-purpose registries of IPv4 and IPv6 (2025), without the block that maps IPv4; then multicast, and
    /// addresses outside of all blocks.
    #[rustfmt::skip]
    const REGISTRIES: [&str; 47] = [
        "0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/32",
        "192.0.0.171/32", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "255.255.255.255/32",
        "224.0.0.0/4", "168.63.129.16/32",
        "::1/128", "::/128", "::ffff:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001::/32",
        "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10",
        "fec0::/10", "ff00::/8", "::/96", "4000::/2", "8000::/1",
    ];

    #[rustfmt::skip]
    const PUBLIC: [&str; 32] = [
        "1.0.0.1", "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
        "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0",
        "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "203.0.112.255", "223.255.255.255",
        "168.63.129.15", "168.63.129.17",
        "2001:200::", "2001:4860:4860::8888", "2003::", "2606:4700:4700::1111", "2a00:1450:4001::1", "3ffe::", "3fff:1000::",
        "64:ff9b::8.8.8.8",
    ];

    fn block(text: &str) -> (IpAddr, u32) {
        let (address, bits) = text.split_once('/').unwrap();
        (address.parse().unwrap(), bits.parse().unwrap())
    }

    /// The block's address whose free bits are those of `fill`.
    fn inside((block, bits): (IpAddr, u32), fill: u128) -> IpAddr {
        match block {
            IpAddr::V4(block) => {
                let free = u32::MAX.checked_shr(bits).unwrap_or(0);
                Ipv4Addr::from_bits(block.to_bits() | (fill as u32 & free)).into()
            }
            IpAddr::V6(block) => {
                let free = u128::MAX.checked_shr(bits).unwrap_or(0);
                Ipv6Addr::from_bits(block.to_bits() | (fill & free)).into()
            }
        }
    }

    #[test]
    fn the_public_internet_is_open_up_to_its_borders() {
        for address in PUBLIC {
            assert_eq!(special(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn known_targets_are_refused_as_what_they_are() {
        for (address, kind) in [
            ("169.254.169.254", "a link-local"),
            ("fd00:ec2::254", "a private"),
            ("100.100.100.200", "a carrier's shared"),
            ("192.0.0.192", "a reserved"),
            ("168.63.129.16", "a cloud's metadata"),
            ("::ffff:127.0.0.1", "an IPv4-mapped"),
            ("::127.0.0.1", "a reserved"),
            ("64:ff9b::169.254.169.254", "a link-local"),
            ("64:ff9b:1::8.8.8.8", "a reserved"),
            ("2002:7f00:1::", "a 6to4"),
            ("255.255.255.255", "a reserved"),
            ("::", "an unspecified"),
        ] {
            assert_eq!(special(address.parse().unwrap()), Some(kind), "{address}");
        }
    }

    proptest! {
        #[test]
        fn every_special_address_is_refused(fill: u128) {
            for text in REGISTRIES {
                for fill in [0, fill, u128::MAX] {
                    let address = inside(block(text), fill);
                    prop_assert!(special(address).is_some(), "{address} of {text}");
                }
            }
        }

        #[test]
        fn ipv4_is_judged_alike_behind_nat64_and_refused_in_other_dress(bits: u32) {
            let plain = Ipv4Addr::from_bits(bits);
            let dressed = |prefix: [u16; 6]| {
                let [a, b, c, d, e, f] = prefix;
                Ipv6Addr::new(a, b, c, d, e, f, (bits >> 16) as u16, bits as u16)
            };
            prop_assert_eq!(special(dressed([0x64, 0xff9b, 0, 0, 0, 0]).into()), special(plain.into()));
            prop_assert!(special(plain.to_ipv6_mapped().into()).is_some());
            prop_assert!(special(plain.to_ipv6_compatible().into()).is_some());
        }

        /// The standard library knows some of these kinds.
        #[test]
        fn what_the_standard_library_knows_is_refused(v4: u32, v6: u128) {
            let v4 = Ipv4Addr::from_bits(v4);
            let v6 = Ipv6Addr::from_bits(v6);
            let known = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified();
            prop_assert!(!known || special(v4.into()).is_some(), "{v4}");
            let known = v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast() || v6.is_loopback();
            prop_assert!(!known || special(v6.into()).is_some(), "{v6}");
        }
    }
}
