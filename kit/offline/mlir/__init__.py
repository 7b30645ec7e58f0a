"""Executes the MLIR that Wave emits, with numpy: all threads of many workgroups at once, operation by operation.

It follows the module as it leaves Wave, before any code is generated: real lane layouts of matrix instructions, LDS,
shuffles, and buffer descriptors that answer reads behind their end with zero. It does not see what happens after
MLIR: code generation, races between waves, and the hardware's own rounding. Dialects: https://mlir.llvm.org/docs/Dialects/.
"""
