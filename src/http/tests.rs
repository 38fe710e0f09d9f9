//! The web surface.
