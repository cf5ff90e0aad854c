#!/bin/sh
# Builds the FlashInfer baseline: build_flashinfer.sh OUTPUT_DIRECTORY
#
# Needs a CUDA 13 nvcc, a host C++ compiler and the headers of FlashInfer's wheel:
#   python3 -m pip install --no-deps 'flashinfer-python==0.7.2.post1'
# nvcc may come from the toolkit or from wheels (nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-nvvm,
# nvidia-cuda-runtime, nvidia-cuda-cccl). Variables, with their defaults:
#
#   PYTHON      interpreter that has the wheels             (python3)
#   FLASHINFER  the package's folder, with data/include     (found by PYTHON)
#   VERSION     the package's version, for reports          (found by PYTHON, or in the folder)
#   NVCC        compiler                                    (found on PATH, under CUDA_HOME, in the wheels)
#   ARCH        compute capability without the dot          (90a)
set -eu

die() {
    echo "build_flashinfer.sh: $*" >&2
    exit 1
}

[ $# -eq 1 ] || die "usage: build_flashinfer.sh OUTPUT_DIRECTORY"
out=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3}
arch=${ARCH:-90a}

# Prints the folder of a package without importing it, or nothing.
package() {
    "$python" -c "import importlib.util as u; print(list(u.find_spec('$1').submodule_search_locations)[0])" \
        2>/dev/null || true
}

flashinfer=${FLASHINFER:-$(package flashinfer)}
[ -n "$flashinfer" ] ||
    die "$python has no flashinfer-python; install it, set PYTHON to one that has it, or FLASHINFER to its folder"
data=$flashinfer/data
for file in include/flashinfer/comm/trtllm_allreduce_fusion.cuh include/flashinfer/comm/vllm_custom_all_reduce.cuh \
    spdlog/include/spdlog/spdlog.h; do
    [ -e "$data/$file" ] || die "$data/$file is missing; install flashinfer-python 0.7.2.post1"
done

# The version that the folder states, or that of the installed package.
version=${VERSION:-$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$flashinfer/_build_meta.py" 2>/dev/null || true)}
[ -n "$version" ] || version=$("$python" -c \
    "import importlib.metadata as m; print(m.version('flashinfer-python'))" 2>/dev/null || true)
[ -n "$version" ] || version="of unknown version"

toolkit=$(package nvidia.cu13)
nvcc=${NVCC:-$(command -v nvcc || true)}
[ -n "$nvcc" ] || for candidate in "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" "$toolkit/bin/nvcc"; do
    if [ -x "$candidate" ]; then
        nvcc=$candidate
        break
    fi
done
[ -n "$nvcc" ] || die "nvcc not found; install nvidia-cuda-nvcc, or set NVCC"
# The wheel's nvcc does not search the wheel's lib folder.
case $nvcc in
"$toolkit"/*) set -- -L"$toolkit/lib" ;;
*) set -- ;;
esac

mkdir -p "$out"
# The program, and a library with the same kernels for benches/python/decode.py.
for kind in '' '-shared -Xcompiler -fPIC'; do
    file=$out/flashinfer_collectives
    [ -z "$kind" ] || file=$out/libflashinfer_collectives.so
    # shellcheck disable=SC2086 # Flags are words.
    "$nvcc" $kind -std=c++17 -O3 --expt-relaxed-constexpr -gencode "arch=compute_$arch,code=sm_$arch" \
        -DFLASHINFER_VERSION="\"$version\"" -I"$data/include" -I"$data/spdlog/include" \
        -I"$here/../../device/include" \
        "$here/flashinfer_collectives.cu" -o "$file" "$@"
    echo "$file"
done
