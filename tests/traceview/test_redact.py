"""Names -> pseudonyms: what stays, what goes, and that nothing else is possible."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview.redact import Redactor
from traceview.redact.words import is_public, public
from traceview.result import Result
from traceview.schema import LEAVES

KEY = bytes(range(32))


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(KEY)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<int, 3> >",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT",
        "Optimizer.step#AdamW.step",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "autograd::engine::evaluate_function: AddmmBackward0",
        "FullyShardedDataParallel.forward",
        "Memcpy HtoD (Pinned -> Device)",
        "ProfilerStep#12",
        "0000:af:00.0",
        "mlx5_0:1/IB",
        "torch 2.4.1, CUDA 12.4, NCCL 2.21.5",
        "0-7,16",
        "NCCL_SOCKET_IFNAME=eth0;NCCL_IB_HCA=mlx5_0",
        "2023-11-14 22:13:20 UTC, 1.35x slower, −2.5 ms (µs, %)",
        "/dev/shm",
    ],
)
def test_what_is_public_stays(redactor: Redactor, name: str):
    assert redactor.text(name) == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nn.Module: ZephyrAttention_3", "nn.Module: name-_3"),
        ("zephyr.models.router.forward", "name-.models.router.forward"),
        ("void zephyr::secret_router_kernel<float, 4>(float*)", "void name-::name-<float, 4>(float*)"),
        ("rank 3 at 10.77.1.2", "rank 3 at addr-"),
        ("fe80::1ff:fe23:4567:890a and 00:1b:44:11:3a:b7", "addr- and addr-"),
        ("mail walterx@mail.acmecorp.example.", "mail user-."),
        ("key ghp_16C7e42F292c6912E7710c838347Ae178B4a", "key name-"),
        ("id 3fa85f64-5717-4562-b3fc-2c963f66afa6", "id name-"),
        ("see https://wandb.acmecorp.example/zephyr/runs/1", "see addr-"),
        ("gpu7.acmecorp.com is late", "host- is late"),
        ("/home/walterx/zephyr/rank0.json.gz: cannot be read", "path-/rank0.json.gz: cannot be read"),
        ("~/zephyr/x.json", "path-/x.json"),
        ("zephyr/trace_7.json", "name-/trace_7.json"),
        ("C:\\Users\\walterx\\rank0.json", "C:path-/rank0.json"),
        ("Çelik наш 模型", "name- name- name-"),
        ("GPT4 a8f3d9c1e5b7", "name-4 name-"),
    ],
)
def test_what_is_not_goes(redactor: Redactor, text: str, shown: str):
    assert re.sub(r"(?<=-)[a-z2-7]{8}", "", redactor.text(text)) == shown


def test_known_names_go_as_a_whole_wherever_they_stand(redactor: Redactor):
    redactor.know("host", "node-1")
    host = redactor.known["node-1"]
    assert redactor.text("check node-1, not node-12: node-1_77.5.pt.trace.json, 'node-1:4:7'") == (
        f"check {host}, not node-12: {host}_77.5.pt.trace.json, '{host}:4:7'"
    )
    redactor.know("path", "/data/my job/zephyr/node-1_1.2.json")
    shown = redactor.text("/data/my job/zephyr/node-1_1.2.json: is cut off")
    assert re.fullmatch(rf"path-\w{{8}}/{host}_1\.2\.json: is cut off", shown)
    assert redactor.text("/data/my job/zephyr/node-1_1.2.json") == shown.removesuffix(": is cut off")


def test_a_host_of_an_everyday_name_does_not_spoil_sentences(redactor: Redactor):
    for host in ("12", "worker", "?rank3"):
        redactor.know("host", host)
    assert redactor.text("9 of 12 steps, ?rank3, every worker") == "9 of 12 steps, ?rank3, every worker"
    assert redactor.text("worker").startswith("host-") and redactor.text("12").startswith("host-")
    assert redactor.text("?rank3") == "?rank3"


@pytest.mark.parametrize(
    "word", ["llama", "falcon", "mixtral", "qwen", "gemini", "gpt", "resnet", "bert", "alice", "walter", "acme"]
)
def test_names_of_models_and_people_are_not_public(word: str):
    assert not is_public(word) and not is_public(word.capitalize() + "Attention") and not is_public(f"{word}_block")


def test_traceviews_own_words_are_public():
    assert all(map(is_public, LEAVES)) and all(map(is_public, Result.__struct_fields__))
    assert len(public().technical) > 500


WORD = st.text(string.ascii_letters + string.digits + "_-./:@ é", max_size=30)


@settings(max_examples=100)
@given(WORD, WORD)
def test_a_word_that_is_not_public_never_survives(before: str, after: str):
    redactor = Redactor(KEY)
    shown = redactor.text(f"{before} zqxkvw {after}")
    assert "zqxkvw" not in shown
    assert redactor.text(f"{before} zqxkvw {after}") == Redactor(KEY).text(f"{before} zqxkvw {after}") == shown


@settings(max_examples=100)
@given(st.text(max_size=40))
def test_every_word_of_the_output_is_public_or_a_pseudonym(text: str):
    redactor = Redactor(KEY)
    shown = redactor.text(text)
    for pseudonym in redactor.originals:
        shown = shown.replace(pseudonym, " ")
    assert all(is_public(w) or is_public(w.rstrip("0123456789_")) for w in re.findall(r"\w+", shown)), shown


@settings(max_examples=100)
@given(st.sets(st.text(string.ascii_lowercase, min_size=3, max_size=12), max_size=20))
def test_different_names_stay_different(names: set[str]):
    redactor = Redactor(KEY)
    assert len({redactor.text(name) for name in names}) == len(names)


def test_another_key_gives_other_names():
    assert Redactor(KEY).text("zqxkvw") != Redactor(bytes(32)).text("zqxkvw")
    assert Redactor(KEY).fingerprint != Redactor(bytes(32)).fingerprint
