//! Large columns of 32-bit words, committed by the host only where written.
//!
//! A column for 1 TiB of simulated memory takes 1 GiB. It is reserved whole, so
//! that it never moves, and asks the host for huge pages: with base pages every
//! access of the hot loop would also miss the host's TLB.

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::MmapMut;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A column of zeroed words, of 32 bits for the most part.
pub(crate) struct Table<T = u32> {
    map: MmapMut,
    words: PhantomData<T>,
}

impl<T> Table<T> {
    /// Reserves `len` words.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let bytes = len.max(1) * size_of::<T>();
        let map = memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?;
        // Only a wish: a host without huge pages is slower, not wrong. Small
        // columns stay on base pages, so that a small run is small.
        #[cfg(target_os = "linux")]
        if bytes >= 2 << 20 {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self { map, words: PhantomData })
    }
}

impl<T: AnyBitPattern + NoUninit> Deref for Table<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map)
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map)
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

/// The same for a value of so many bytes, as far as it matters. Where they are known beforehand it is an instruction a
/// line.
#[inline(always)]
pub(crate) fn prefetch_value(address: usize, bytes: usize) {
    const LINE: usize = 64;
    const MOST: usize = 10 * LINE;
    let mut offset = 0;
    while offset < bytes && offset < MOST {
        prefetch_at((address + offset) as *const u8);
        offset += LINE;
    }
}
