//! Large columns of 32-bit words, committed by the host only where written.
//!
//! A column for 1 TiB of simulated memory takes 1 GiB. It is reserved whole, so
//! that it never moves, and asks the host for huge pages: with base pages every
//! access of the hot loop would also miss the host's TLB.

use memmap2::MmapMut;
use std::io;
use std::ops::{Deref, DerefMut};

/// A column of zeroed words.
pub(crate) struct Table {
    map: MmapMut,
}

impl Table {
    /// Reserves `len` words.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let bytes = len.max(1) * 4;
        let map = memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?;
        // Only a wish: a host without huge pages is slower, not wrong. Small
        // columns stay on base pages, so that a small run is small.
        #[cfg(target_os = "linux")]
        if bytes >= 2 << 20 {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self { map })
    }
}

impl Deref for Table {
    type Target = [u32];
    #[inline]
    fn deref(&self) -> &[u32] {
        bytemuck::cast_slice(&self.map)
    }
}

impl DerefMut for Table {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(&mut self.map)
    }
}

/// A column of zeroed words of 64 bits, as lazily committed.
pub(crate) struct Wide(Table);

impl Wide {
    /// Reserves `len` words.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        Table::new(len * 2).map(Self)
    }
}

impl Deref for Wide {
    type Target = [u64];
    #[inline]
    fn deref(&self) -> &[u64] {
        bytemuck::cast_slice(&self.0.map)
    }
}

impl DerefMut for Wide {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.0.map)
    }
}

/// Asks the processor to fetch `column[i]`; does nothing past the end or where
/// there is no such instruction.
#[inline(always)]
pub(crate) fn prefetch(column: &[u32], i: usize) {
    prefetch_at(column.as_ptr().wrapping_add(i));
}

/// Asks the processor to fetch what lies at an address, whether or not anything does.
#[inline(always)]
pub(crate) fn prefetch_at<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same for a value of so many bytes, as far as it matters.
#[inline]
pub(crate) fn prefetch_value(address: usize, bytes: usize) {
    const LINE: usize = 64;
    for offset in (0..bytes.min(10 * LINE)).step_by(LINE) {
        prefetch_at((address + offset) as *const u8);
    }
}
