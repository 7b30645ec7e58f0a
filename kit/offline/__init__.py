"""What needs no hardware: cross-compilation, resources of code objects, and execution of the MLIR that Wave emits."""
