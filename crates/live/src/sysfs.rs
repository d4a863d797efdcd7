//! The topology of this machine, as sysfs tells it.
