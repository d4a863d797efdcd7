//! What the plugin sends to the process that writes the recording.
