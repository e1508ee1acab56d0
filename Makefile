# make build     the program, build/release/trireme
# make demo      trains a small model on a real text, in a minute or two
# make test      builds everything and runs all tests (what CI runs first)
# make sanitize  the unit tests under the address, undefined-behaviour and thread sanitizers
# make fuzz      readers of files and options on random texts, FUZZ_SECONDS (60) each
# make tidy      format, include table, headers alone, clang-tidy (minutes)
# make format    formats the sources in place
# make coverage  build/coverage/index.html
# make clean     removes build/
# Each installs what it needs first (Debian packages, tools/install.sh).

CI ?=
JOBS ?= $(shell nproc)
FLAGS = $(if $(CI),-DTRIREME_WERROR=ON)

.PHONY: build demo test sanitize fuzz tidy format coverage clean
.DEFAULT_GOAL = build

build:
	@tools/install.sh build
	@cmake --preset release $(FLAGS) > /dev/null
	@cmake --build --preset release --target trireme --parallel $(JOBS)

demo: build
	@tools/demo.sh

test:
	@tools/install.sh test
	@cmake --preset release $(FLAGS) > /dev/null
	@cmake --build --preset release --parallel $(JOBS)
	@ctest --preset release --parallel $(JOBS)

sanitize: sanitize-asan-ubsan sanitize-tsan

sanitize-%:
	@tools/install.sh test
	@cmake --preset $* > /dev/null
	@cmake --build --preset $* --parallel $(JOBS)
	@ctest --preset $* --parallel $(JOBS)

FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= units model_config cluster planner_files control

fuzz:
	@tools/install.sh fuzz
	@cmake --preset fuzz > /dev/null
	@cmake --build --preset fuzz --parallel $(JOBS)
	@set -e; for target in $(FUZZ_TARGETS); do \
	  mkdir -p build/fuzz/corpus/$$target; \
	  build/fuzz/tests/fuzz_$$target -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 -timeout=10 \
	    -verbosity=0 -print_final_stats=1 \
	    -artifact_prefix=build/fuzz/$$target- build/fuzz/corpus/$$target tests/fuzz/corpus/$$target; \
	done

tidy:
	@tools/install.sh tidy
	@tools/tidy.sh

format:
	@tools/install.sh tidy
	@find src tests bench -name '*.h' -o -name '*.cc' | xargs clang-format -i

coverage:
	@tools/install.sh coverage
	@cmake --preset coverage > /dev/null
	@cmake --build --preset coverage --parallel $(JOBS)
	@ctest --preset coverage --parallel $(JOBS)
	@gcovr --root . --filter src/ --exclude '.*_test\.cc' --exclude '.*/test_[a-z_]*\.h' \
	  --exclude-throw-branches --html-details build/coverage/index.html --print-summary build/coverage

clean:
	@rm -rf build
