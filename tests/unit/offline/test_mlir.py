"""The interpreter on small modules whose answers are worked out by hand or by numpy."""

import numpy as np
import pytest

from kit.offline.mlir.kernel import Kernel
from kit.offline.mlir.machine import MlirFault

BUFFER = "memref<?xf32, #amdgpu.address_space<fat_raw_buffer>>"


def module(body: str, *, threads: int = 64, groups: str = "%c1", buffers: int = 2, element: str = "f32") -> Kernel:
    """A kernel of one-dimensional buffers, the last of which it writes, as Wave hands one to IREE."""
    bindings = ", ".join(f"%arg{i}: !stream.binding" for i in range(buffers))
    spans = "\n".join(
        f"%b{i} = stream.binding.subspan %arg{i}[%c0] : !stream.binding -> memref<{element}>" for i in range(buffers)
    )
    views = ", ".join(f"%v{i}: !hal.buffer_view" for i in range(buffers))
    imports = "\n".join(
        f"%d{i} = hal.buffer_view.dim<%v{i} : !hal.buffer_view>[0] : index\n"
        f"%t{i} = hal.tensor.import wait(%f0) => %v{i} : !hal.buffer_view -> tensor<?x{element}>{{%d{i}}}"
        for i in range(buffers)
    )
    tensors = ", ".join(f"%t{i}" for i in range(buffers))
    types = ", ".join(f"tensor<?x{element}>{{%d{i}}}" for i in range(buffers))
    last = buffers - 1
    return Kernel(f"""
#translation = #iree_codegen.translation_info<pipeline = None workgroup_size = [{threads}, 1, 1] subgroup_size = 64>
module {{
  stream.executable private @k {{
    stream.executable.export public @k workgroups(%n: index) -> (index, index, index) {{
      %c1 = arith.constant 1 : index
      stream.return {groups}, %c1, %c1 : index, index, index
    }}
    builtin.module {{
      func.func @k({bindings}) attributes {{translation_info = #translation}} {{
        %c0 = arith.constant 0 : index
        {spans}
        {body}
        return
      }}
    }}
  }}
  func.func @host({views}, %f0: !hal.fence, %f1: !hal.fence) -> !hal.buffer_view {{
    {imports}
    %r = flow.dispatch @k::@k[%d0]({tensors}) : ({types}) -> %t{last}{{%d{last}}}
    %x = hal.tensor.export %r : tensor<?x{element}>{{%d{last}}} -> !hal.buffer_view
    return %x : !hal.buffer_view
  }}
}}""")


def strided(name: str, source: str) -> str:
    return (
        f"%{name} = memref.reinterpret_cast %{source} to offset: [0], sizes: [1000], strides: [1] : "
        f"memref<f32> to memref<1000xf32, strided<[1]>>"
    )


PLAIN = "memref<1000xf32, strided<[1]>>"
THREAD = "%t = gpu.thread_id x"


def test_every_thread_of_every_workgroup_runs() -> None:
    kernel = module(
        f"""{THREAD}
        %g = gpu.block_id x
        %c64 = arith.constant 64 : index
        %start = arith.muli %g, %c64 : index
        %at = arith.addi %start, %t : index
        {strided("in", "b0")}
        {strided("out", "b1")}
        %v = vector.load %in[%at] : {PLAIN}, vector<1xf32>
        %two = arith.constant dense<2.0> : vector<1xf32>
        %w = arith.mulf %v, %two : vector<1xf32>
        vector.store %w, %out[%at] : {PLAIN}, vector<1xf32>""",
        groups="%n",
    )
    given, out = np.arange(192, dtype=np.float32), np.full(192, np.nan, np.float32)
    with pytest.raises(MlirFault, match="takes 2 arguments"):
        kernel.run([given], [])
    counts = kernel.run([given[:192], out], [])
    assert counts["workgroups"] == 192
    np.testing.assert_array_equal(out, 2 * given)
    assert counts["out_of_bounds_reads"] == 191 * 64 - 128  # 192 workgroups of 64 threads, 192 elements


def test_a_read_behind_the_end_is_counted_unless_it_is_masked_or_guarded() -> None:
    given, out = np.arange(60, dtype=np.float32), np.zeros(64, np.float32)
    load = f"""{THREAD}
        {strided("in", "b0")}
        {strided("out", "b1")}
        """
    store = f"vector.store %v, %out[%t] : {PLAIN}, vector<1xf32>"
    bare = module(load + f"%v = vector.load %in[%t] : {PLAIN}, vector<1xf32>\n" + store)
    assert bare.run([given, out], [])["out_of_bounds_reads"] == 4
    mask = """%c60 = arith.constant 60 : index
        %keep = arith.cmpi slt, %t, %c60 : index
        %mask = vector.broadcast %keep : i1 to vector<1xi1>
        %other = arith.constant dense<-1.0> : vector<1xf32>
        """
    masked = module(
        load
        + mask
        + f"%v = vector.maskedload %in[%t], %mask, %other : {PLAIN}, vector<1xi1>, vector<1xf32> into vector<1xf32>\n"
        + store
    )
    assert masked.run([given, out], [])["out_of_bounds_reads"] == 0
    np.testing.assert_array_equal(out, [*range(60), -1, -1, -1, -1])
    guard = f"""%bytes = arith.constant 240 : i64
        %cast = memref.cast %in : {PLAIN} to memref<?xf32, strided<[1], offset: ?>>
        %buffer = amdgpu.fat_raw_buffer_cast %cast validBytes(%bytes) resetOffset : memref<?xf32, strided<[1], offset: ?>> to {BUFFER}
        %v = vector.load %buffer[%t] : {BUFFER}, vector<1xf32>
        """
    counts = module(load + guard + store).run([given, out], [])
    assert (counts["out_of_bounds_reads"], counts["guarded_reads"]) == (0, 4)
    np.testing.assert_array_equal(out, [*range(60), 0, 0, 0, 0])


def test_a_loop_ends_for_each_thread_at_its_own_bound() -> None:
    kernel = module(
        f"""{THREAD}
        {strided("out", "b0")}
        %c1 = arith.constant 1 : index
        %zero = arith.constant dense<0.0> : vector<1xf32>
        %one = arith.constant dense<1.0> : vector<1xf32>
        %sum = scf.for %i = %c0 to %t step %c1 iter_args(%so_far = %zero) -> (vector<1xf32>) {{
          %more = arith.addf %so_far, %one : vector<1xf32>
          scf.yield %more : vector<1xf32>
        }}
        vector.store %sum, %out[%t] : {PLAIN}, vector<1xf32>""",
        buffers=1,
    )
    out = np.full(64, np.nan, np.float32)
    kernel.run([out], [])
    np.testing.assert_array_equal(out, np.arange(64))


def test_a_branch_writes_only_for_the_threads_that_take_it() -> None:
    kernel = module(
        f"""{THREAD}
        {strided("out", "b0")}
        %c10 = arith.constant 10 : index
        %one = arith.constant dense<1.0> : vector<1xf32>
        %low = arith.cmpi slt, %t, %c10 : index
        scf.if %low {{
          vector.store %one, %out[%t] : {PLAIN}, vector<1xf32>
        }}""",
        buffers=1,
    )
    out = np.zeros(64, np.float32)
    kernel.run([out], [])
    assert out.tolist() == [1.0] * 10 + [0.0] * 54


@pytest.mark.parametrize(("size", "depth", "registers"), [(16, 16, 4), (32, 8, 16)])
def test_a_matrix_instruction_multiplies(size: int, depth: int, registers: int) -> None:
    """Every lane loads its part of A and B by the documented layout; D is stored the same way, and must be A B."""
    groups, each = 64 // size, depth // (64 // size)
    kernel = module(
        f"""{THREAD}
        %a = memref.reinterpret_cast %b0 to offset: [0], sizes: [4096], strides: [1] : memref<f32> to memref<4096xf32, strided<[1]>>
        %b = memref.reinterpret_cast %b1 to offset: [0], sizes: [4096], strides: [1] : memref<f32> to memref<4096xf32, strided<[1]>>
        %out = memref.reinterpret_cast %b2 to offset: [0], sizes: [4096], strides: [1] : memref<f32> to memref<4096xf32, strided<[1]>>
        %each = arith.constant {each} : index
        %at = arith.muli %t, %each : index
        %x = vector.load %a[%at] : memref<4096xf32, strided<[1]>>, vector<{each}xf32>
        %y = vector.load %b[%at] : memref<4096xf32, strided<[1]>>, vector<{each}xf32>
        %xh = arith.truncf %x : vector<{each}xf32> to vector<{each}xf16>
        %yh = arith.truncf %y : vector<{each}xf32> to vector<{each}xf16>
        %zero = arith.constant dense<0.0> : vector<{registers}xf32>
        %d =
          amdgpu.mfma {size}x{size}x{depth} %xh * %yh + %zero blgp = none : vector<{each}xf16>, vector<{each}xf16>, vector<{registers}xf32>
        %registers = arith.constant {registers} : index
        %to = arith.muli %t, %registers : index
        vector.store %d, %out[%to] : memref<4096xf32, strided<[1]>>, vector<{registers}xf32>""",
        buffers=3,
    )
    draw = np.random.default_rng(0)
    left, right = (draw.integers(-8, 8, (size, depth)).astype(np.float32) for _ in range(2))
    by_lane = [m.reshape(size, groups, each).transpose(1, 0, 2).ravel() for m in (left, right)]
    out = np.full(64 * registers, np.nan, np.float32)
    kernel.run([*by_lane, out], [])
    lanes = out.reshape(64, registers)
    product = left @ right.T
    for lane in range(64):
        for register in range(registers):
            row = 4 * (lane // 16) + register if size == 16 else 8 * (register // 4) + 4 * (lane // 32) + register % 4
            assert lanes[lane, register] == product[row, lane % size]


def test_what_is_not_known_is_named() -> None:
    kernel = module(
        f"""{THREAD}
        %x = math.ctpop %t : index""",
        buffers=1,
    )
    with pytest.raises(MlirFault, match=r"math\.ctpop is not known"):
        kernel.run([np.zeros(1, np.float32)], [])
    with pytest.raises(MlirFault, match="cannot be parsed"):
        Kernel("module { nonsense }").run([], [])
