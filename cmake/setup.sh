# Set-up shared by samples/run.sh and tests/run.sh; source it, do not run it. Prints what it installs. Fast if all is there.
# Needs Debian 12+ or Ubuntu 24.04+ and, only if packages are missing, root or sudo.
#   STEPSCOPE_PYTHON   a Python with torch, which is not changed (an active virtual environment with torch is found without it)
#   STEPSCOPE_JOBS     parallel compile jobs; default: all cores

stepscope_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
stepscope_torch_pin=2.11.0
stepscope_log=$stepscope_root/build/setup.log

say() { printf '\033[1m== %s\033[0m\n' "$*" | { [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && cat || sed 's/\x1b\[[0-9;]*m//g'; }; }
die() { printf 'stepscope: %s\n' "$*" >&2; exit 1; }

# quiet WHAT COMMAND...: runs the command with its output in the log, and prints a dot every two seconds.
quiet() {
  local what=$1 start=$SECONDS pid
  shift
  mkdir -p "$(dirname "$stepscope_log")"
  printf '   %s ' "$what"
  "$@" </dev/null >>"$stepscope_log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do sleep 2; printf .; done
  if wait "$pid"; then
    printf ' %d s\n' $((SECONDS - start))
  else
    printf '\n'; tail -n 30 "$stepscope_log" >&2
    die "$what failed (the whole output is in $stepscope_log)"
  fi
}

# apt_packages NAME...: installs missing packages.
apt_packages() {
  local missing=() name sudo=""
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  command -v apt-get >/dev/null || die "needs these packages, and there is no apt-get here: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "needs root or sudo to install: ${missing[*]}"
    sudo=sudo
  fi
  say "installing Debian packages: ${missing[*]}"
  quiet "apt-get update" $sudo apt-get update -q
  quiet "apt-get install" $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

has_module() { "$1" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$2') is None)" 2>/dev/null; }

# pip_packages VENV ARGUMENT...: makes the environment if needed and runs pip install, unless the environment's stamp file
# already lists all of the arguments. The stamp has one line per installation.
pip_packages() {
  local venv=$1 stamp=$1/stepscope-installed missing="" installed word
  shift
  if [ ! -x "$venv/bin/python" ]; then
    say "making the Python environment ${venv#"$stepscope_root"/}"
    quiet "python3 -m venv" python3 -m venv "$venv"
  fi
  installed=" $({ cat "$stamp" 2>/dev/null || true; } | tr '\n' ' ') "
  for word in "$@"; do
    case $installed in *" $word "*) ;; *) missing=1 ;; esac
  done
  if [ -n "$missing" ]; then
    say "installing from PyPI into ${venv#"$stepscope_root"/}: $*"
    quiet "pip install" "$venv/bin/python" -m pip install --disable-pip-version-check "$@"
    printf '%s\n' "$*" >>"$stamp"
  fi
}

# Installs compilers and libraries, and CMake and Ninja from PyPI if the system's versions are too old.
setup_build() {
  apt_packages g++ make cmake ninja-build pkg-config python3 python3-venv libprotobuf-dev protobuf-compiler libabsl-dev \
    libsimdjson-dev zlib1g-dev libzstd-dev libjpeg-dev libgtest-dev libgmock-dev mold "$@"
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/cmake version //p')
  if [ "$(printf '%s\n3.25\n' "${version:-0}" | sort -V | head -n 1)" != 3.25 ] || ! command -v ninja >/dev/null; then
    pip_packages "$stepscope_root/.venv-build" cmake ninja
    PATH=$stepscope_root/.venv-build/bin:$PATH
  fi
}

# Finds a Python with torch: STEPSCOPE_PYTHON, else the active environment, else .venv with torch from PyPI.
setup_torch() {
  if [ -n "${STEPSCOPE_PYTHON:-}" ]; then
    has_module "$STEPSCOPE_PYTHON" torch || die "STEPSCOPE_PYTHON=$STEPSCOPE_PYTHON has no torch: install it there, or unset the variable"
  elif [ -n "${VIRTUAL_ENV:-}" ] && has_module "$VIRTUAL_ENV/bin/python" torch; then
    STEPSCOPE_PYTHON=$VIRTUAL_ENV/bin/python
  else
    STEPSCOPE_PYTHON=$stepscope_root/.venv/bin/python
    has_module "$STEPSCOPE_PYTHON" torch || say "torch $stepscope_torch_pin with its CUDA libraries: about 5 GB, a minute or two"
    pip_packages "$stepscope_root/.venv" "torch==$stepscope_torch_pin"
  fi
  export STEPSCOPE_PYTHON
}

# Installs TensorBoard with both profile plugins. It has its own environment, so that it and torch do not disturb each other.
setup_tensorboard() {
  stepscope_viewers=$stepscope_root/.venv-tools
  pip_packages "$stepscope_viewers" $(grep -v '^#' "$stepscope_root/tests/e2e/requirements-tensorboard.txt")
}

# Installs TensorBoard and the other programs with which the tests open our files.
setup_viewers() {
  local list=$stepscope_root/tests/e2e
  setup_tensorboard
  pip_packages "$stepscope_viewers" $(grep -v '^[#-]' "$list/requirements.txt")
  pip_packages "$stepscope_viewers" --no-deps $(grep -v '^#' "$list/requirements-no-deps.txt")
}

# build PRESET [TARGET...]: configures with the flags in stepscope_cmake_flags and builds. Uses ccache if it is installed.
stepscope_cmake_flags=()
build() {
  local preset=$1 flags=("-DSTEPSCOPE_PYTHON=${STEPSCOPE_PYTHON:-}" ${stepscope_cmake_flags[@]+"${stepscope_cmake_flags[@]}"}) wanted
  shift
  cd "$stepscope_root" || exit 1
  if command -v ccache >/dev/null; then
    flags+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    export CCACHE_BASEDIR=$stepscope_root CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
  fi
  wanted="$preset ${flags[*]}"
  if [ ! -f "build/$preset/build.ninja" ] || [ "$(cat "build/$preset/configured-with" 2>/dev/null)" != "$wanted" ]; then
    say "configuring build/$preset"
    cmake --preset "$preset" "${flags[@]}" >"$stepscope_root/build/configure-$preset.log" 2>&1 ||
      { tail -n 30 "$stepscope_root/build/configure-$preset.log" >&2; die "cmake failed"; }
    grep -E '^--   ' "$stepscope_root/build/configure-$preset.log" | sed 's/^--//'
    printf '%s\n' "$wanted" >"build/$preset/configured-with"
  fi
  say "building build/$preset"
  cmake --build "build/$preset" -j "${STEPSCOPE_JOBS:-$(nproc)}" ${1:+--target "$@"}
}
