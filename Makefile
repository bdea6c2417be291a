# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# scripts/install-deps.sh puts a Go into the cache where the machine's own is too
# old; a GOROOT of the environment would belong to the other one.
export PATH := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fairlead/go/bin:$(PATH):/usr/local/go/bin
unexport GOROOT

# Evaluated only by the recipe that uses them.
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT = $(shell git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null)
LDFLAGS = -s -w -X fairlead.io/fairlead/internal/version.Version=$(VERSION) \
	-X fairlead.io/fairlead/internal/version.Revision=$(COMMIT)

# What "make image" calls the image.
IMAGE = localhost/fairlead:$(VERSION)

# Where "make release" puts a release; scripts/release.sh lists its other settings.
DIST = dist

# The linters, and the gobgpd of labs, live in a module of their own, so that the
# product's go.mod stays the product's.
TOOL := go tool -modfile=tools/go.mod
C_FILES = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h')

# bpf2go reads how to compile BPF programs from here. The objects contain file names,
# from the root of the tree on, so that they are the same in every clone.
export BPF2GO_CC := clang-19
export BPF2GO_STRIP := llvm-strip-19
export BPF2GO_CFLAGS = -I$(CURDIR)/bpf -ffile-prefix-map=$(CURDIR)/= -O2 -mcpu=v3 -Wall -Wextra -Werror \
	$(foreach arch,x86_64 aarch64,-idirafter /usr/include/$(arch)-linux-gnu)

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/fairlead, the product, and bin/fairlab, the laboratory
	@scripts/install-deps.sh build
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/ -ldflags '$(LDFLAGS)' ./cmd/fairlead ./cmd/fairlab

.PHONY: image
image: ## Build bin/fairlead-image.tar, the container image IMAGE
	@scripts/install-deps.sh image
	@$(MAKE) --no-print-directory build
	@go -C tools run ./release licenses >bin/LICENSES.txt
	@scripts/image.sh bin/fairlead-image.tar $(IMAGE) $(VERSION) "$(COMMIT)" bin/LICENSES.txt $$(go env GOARCH)=bin/fairlead

.PHONY: release
release: ## Make dist/: binaries, image, chart, manifest, plugin, wheel, SBOM, licences, checksums (SIGNING_KEY signs)
	@scripts/install-deps.sh release
	@scripts/release.sh $(DIST)

.PHONY: demo
demo: ## Balance real traffic in a lab of network namespaces and show it (root)
	@scripts/install-deps.sh demo
	@$(MAKE) --no-print-directory build
	@bin/fairlab demo

.PHONY: gobgpd
gobgpd: ## Build bin/gobgpd, for labs with --router gobgp
	@scripts/install-deps.sh build
	CGO_ENABLED=0 go build -modfile=tools/go.mod -trimpath -o bin/gobgpd github.com/osrg/gobgp/v4/cmd/gobgpd

.PHONY: kubernetes
kubernetes: ## Build the Kubernetes that tests run, once, and print its path
	@scripts/install-deps.sh kubernetes
	@go run ./test/cluster/up --build

.PHONY: test
test: ## Run the tests for every change (root, or those that need it are skipped)
	@scripts/install-deps.sh test
	@scripts/test.sh test

.PHONY: test-ci
test-ci: ## Run one round of each slower kind: labs, a guest kernel, a cluster, API servers
	@scripts/install-deps.sh test-ci
	@scripts/test.sh ci

.PHONY: test-all
test-all: ## Run everything else: other kernels, routers and clusters, fuzzing, the laboratory
	@scripts/install-deps.sh test-all
	@scripts/test.sh all

.PHONY: test-openstack
test-openstack: ## Run the rounds of test-all that have OpenStack's control plane
	@scripts/install-deps.sh openstack
	@scripts/test.sh all openstack tempest

.PHONY: test-octavia
test-octavia: ## Run the tests of the provider of Octavia, and check its types and style
	@scripts/install-deps.sh octavia
	@scripts/test.sh ci octavia

.PHONY: verify
verify: ## Lint, and check formats, modules, generated files and known vulnerabilities
	@scripts/install-deps.sh verify
	@scripts/verify.sh

.PHONY: generate
generate: ## Compile the BPF programs and what else is generated
	@scripts/install-deps.sh generate
	go generate ./...

.PHONY: bpf
bpf: ## Compile the BPF programs only
	@scripts/install-deps.sh generate
	go generate -run bpf2go ./...

.PHONY: manifests
manifests: ## Render the chart (VALUES) to bin/fairlead.yaml (MANIFESTS)
	@scripts/install-deps.sh build
	@scripts/manifests.sh "$(VALUES)" "$(MANIFESTS)"

.PHONY: fmt
fmt: ## Format Go and C
	@scripts/install-deps.sh verify
	$(TOOL) golangci-lint fmt
	clang-format-19 -i $(C_FILES)

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist
