//! A descriptor that can be read once the ring was half full.
//!
//! The ring itself can be read as soon as one record is in it: whoever slept on it would
//! be woken by each fault. An epoll that was asked for edges reports what the program
//! wakes it for, and no more than that, until it is asked again.

use super::error::HintsError;
use crate::heat::epoll::Epoll;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The epoll.
pub(super) fn on(ring: BorrowedFd<'_>) -> Result<Epoll, HintsError> {
    let epoll = Epoll::new().map_err(|source| HintsError::Wake { source })?;
    let added = epoll.add(ring.as_raw_fd(), libc::EPOLLET);
    added.map(|()| epoll).map_err(|source| HintsError::Wake { source })
}
