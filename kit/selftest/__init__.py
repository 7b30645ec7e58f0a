"""The proof that red means something: the batteries against injected faults, and against none. Host side: no torch, no SGLang."""
