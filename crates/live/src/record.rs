//! Recording a real program: running it under the recorder and writing what it sends.
