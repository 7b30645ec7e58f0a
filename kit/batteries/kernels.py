"""kernels: grouped decode attention of every library is right on the shapes and lengths of the upstream test."""

from collections.abc import Iterator
from typing import NamedTuple

from kit.batteries.planned import Planned
from kit.batteries.sessions import kernels
from kit.plan import Case, GroupedDecode
from kit.profile import Profile


class Shape(NamedTuple):
    """Sizes of one decode step."""

    batch: int
    query_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int


MULTI_HEAD = Shape(2, 16, 16, 64, 64)
MULTI_QUERY = Shape(2, 16, 1, 64, 64)
ODD_HEAD_DIM = Shape(2, 128, 1, 80, 80)
LARGE_BATCH = Shape(32, 128, 2, 512, 512)
LARGE_HEAD_DIM = Shape(2, 128, 2, 512, 512)
LATENT = Shape(2, 128, 1, 576, 512)  # as in multi-head latent attention

# The six shapes and four lengths of test_grouped_decode_attention in SGLang's test_wave_attention_kernels.py.
SHAPES = (MULTI_HEAD, MULTI_QUERY, ODD_HEAD_DIM, LARGE_BATCH, LARGE_HEAD_DIM, LATENT)
LENGTHS = (5, 100, 128, 500)
FULL = tuple((shape, length) for length in LENGTHS for shape in SHAPES)

# What an interpreter does in seconds: every length, and every shape except the large batch.
INTERPRETER = (
    *((MULTI_QUERY, length) for length in LENGTHS),
    (MULTI_HEAD, 5),
    (ODD_HEAD_DIM, 5),
    (LARGE_HEAD_DIM, 128),
    (LATENT, 100),
)

SELECTIONS = {"full": FULL, "interpreter": INTERPRETER}


def cases(profile: Profile) -> Iterator[Planned]:
    """``kernels/<library>-grouped-decode/b<batch>-hq<heads>-hkv<heads>-d<size>-dv<size>-s<length>``."""
    for library in profile.kernels.libraries:
        session = kernels(profile, library)
        for shape, length in SELECTIONS[profile.kernels.selection]:
            spec = GroupedDecode(**shape._asdict(), length=length)
            case_id = f"kernels/{library}-grouped-decode/{aspect(shape, length)}"
            yield Planned(session, Case(id=case_id, session=session.id, spec=spec))


def aspect(shape: Shape, length: int) -> str:
    """The last part of a case's id."""
    return f"b{shape.batch}-hq{shape.query_heads}-hkv{shape.kv_heads}-d{shape.head_dim}-dv{shape.value_dim}-s{length}"
