//! Result types and their stable formats: tables, pictures, JSON.
