#!/bin/sh
# Builds the NVSHMEM baseline: build.sh OUTPUT_DIRECTORY
#
# Needs a CUDA 13 nvcc, a host C++ compiler and NVSHMEM's wheel:
#   python3 -m pip install 'nvidia-nvshmem-cu13==3.4.5'
# nvcc may come from the toolkit or from wheels (nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-nvvm,
# nvidia-cuda-runtime, nvidia-cuda-cccl). Variables, with their defaults:
#
#   PYTHON  interpreter that has the wheels        (python3)
#   NVCC    compiler                               (found on PATH, under CUDA_HOME, in the wheels)
#   ARCH    compute capability without the dot     (90)
set -eu

die() {
    echo "build.sh: $*" >&2
    exit 1
}

[ $# -eq 1 ] || die "usage: build.sh OUTPUT_DIRECTORY"
out=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3}
arch=${ARCH:-90}

# Prints the folder of a namespace package of the wheels, or nothing.
package() {
    "$python" -c "import $1 as package; print(list(package.__path__)[0])" 2>/dev/null || true
}

nvshmem=$(package nvidia.nvshmem)
[ -n "$nvshmem" ] ||
    die "$python has no nvidia-nvshmem-cu13; install it, or set PYTHON to one that has it"
for file in include/nvshmem.h lib/libnvshmem_device.a lib/libnvshmem_host.so.3; do
    [ -e "$nvshmem/$file" ] || die "$nvshmem/$file is missing; reinstall nvidia-nvshmem-cu13"
done

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
# The device library is given by its path, since the device linker does not find it by `-l`. The host
# library has its versioned name, since the wheel has no other. Device code calls across objects: -rdc.
"$nvcc" -std=c++17 -O3 -rdc=true -gencode "arch=compute_$arch,code=sm_$arch" \
    -I"$nvshmem/include" "$here/nvshmem_p2p.cu" -o "$out/nvshmem_p2p" "$@" \
    "$nvshmem/lib/libnvshmem_device.a" -L"$nvshmem/lib" \
    -Xlinker -l:libnvshmem_host.so.3 -Xlinker -rpath="$nvshmem/lib"
echo "$out/nvshmem_p2p"
