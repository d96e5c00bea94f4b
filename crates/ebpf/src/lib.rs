//! The BPF programs of forebay and their loaders, behind a safe API.
