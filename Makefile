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

# What "make image" calls the image.
IMAGE = localhost/fairlead:$(VERSION)

# The linters, and the gobgpd of labs, live in a module of their own, so that the
# product's go.mod stays the product's.
TOOL := go tool -modfile=tools/go.mod
C_FILES = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h')

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/fairlead, one static binary
	@scripts/install-deps.sh build
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/fairlead \
		-ldflags '-s -w -X main.version=$(VERSION) -X main.revision=$(COMMIT)' ./cmd/fairlead

.PHONY: image
image: ## Build bin/fairlead-image.tar, the container image IMAGE
	@scripts/install-deps.sh image
	@$(MAKE) --no-print-directory build
	@scripts/image.sh bin/fairlead bin/fairlead-image.tar $(IMAGE) $(VERSION) $(COMMIT)

.PHONY: demo
demo: ## Balance real traffic in a lab of network namespaces and show it (root)
	@scripts/install-deps.sh demo
	@$(MAKE) --no-print-directory build
	@bin/fairlead lab demo

.PHONY: gobgpd
gobgpd: ## Build bin/gobgpd, for labs with --router gobgp
	@scripts/install-deps.sh build
	CGO_ENABLED=0 go build -modfile=tools/go.mod -trimpath -o bin/gobgpd github.com/osrg/gobgp/v4/cmd/gobgpd

.PHONY: kubernetes
kubernetes: ## Build the Kubernetes that tests run, once, and print its path
	@scripts/install-deps.sh kubernetes
	@go run ./scripts/kubernetes

.PHONY: test
test: ## Run all tests (root, or those that need it are skipped)
	@scripts/install-deps.sh test
	@go run ./scripts/kubernetes >/dev/null
	@CGO_ENABLED=1 go run ./scripts/testsum -race -shuffle=on -timeout=25m ./...

# Whole clusters take some minutes of a change's time each.
.PHONY: check
check: ## Run all tests but those in whole Kubernetes clusters, for every day
	@scripts/install-deps.sh test
	@go run ./scripts/kubernetes >/dev/null
	@CGO_ENABLED=1 go run ./scripts/testsum -race -shuffle=on -timeout=25m $$(go list ./... | grep -vE '/test/e2e/(kubernetes|guide)$$')

.PHONY: verify
verify: ## Lint, and check formats, modules, generated files and known vulnerabilities
	@scripts/install-deps.sh verify
	@scripts/verify.sh

.PHONY: generate
generate: ## Compile the BPF programs and what else is generated
	@scripts/install-deps.sh generate
	BPF2GO_CC=clang-19 go generate ./...
	@scripts/manifests.sh

.PHONY: manifests
manifests: ## Render the chart (VALUES) to deploy/manifests/fairlead.yaml (MANIFESTS)
	@scripts/install-deps.sh build
	@scripts/manifests.sh "$(VALUES)" "$(MANIFESTS)"

.PHONY: fmt
fmt: ## Format Go and C
	@scripts/install-deps.sh verify
	$(TOOL) golangci-lint fmt
	clang-format-19 -i $(C_FILES)

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
