// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	image "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
)

// Media types of charts in registries (helm.sh/docs/topics/registries).
const (
	chartConfig = "application/vnd.cncf.helm.config.v1+json"
	chartLayer  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// writeChart makes an OCI layout in dir of a packaged chart, as "helm push" would put it
// into a registry. Its tag is the chart's version.
func writeChart(ctx context.Context, archive, dir, created string) error {
	content, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	metadata, err := chartMetadata(content)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	config, err := json.Marshal(metadata)
	if err != nil {
		return err
	}
	name, version := fmt.Sprint(metadata["name"]), fmt.Sprint(metadata["version"])
	store, err := oci.New(dir)
	if err != nil {
		return err
	}
	head, err := oras.PushBytes(ctx, store, chartConfig, config)
	if err != nil {
		return err
	}
	layer, err := oras.PushBytes(ctx, store, chartLayer, content)
	if err != nil {
		return err
	}
	manifest, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_0, "", oras.PackManifestOptions{
		ConfigDescriptor: &head, Layers: []image.Descriptor{layer},
		ManifestAnnotations: map[string]string{
			image.AnnotationTitle: name, image.AnnotationVersion: version, image.AnnotationCreated: created,
			image.AnnotationDescription: fmt.Sprint(metadata["description"]),
		},
	})
	if err != nil {
		return err
	}
	return store.Tag(ctx, manifest, version)
}

// chartMetadata returns the Chart.yaml of a packaged chart.
func chartMetadata(archive []byte) (map[string]any, error) {
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("Chart.yaml: %w", err)
		}
		if header.Name != "fairlead/Chart.yaml" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return nil, err
		}
		var metadata map[string]any
		return metadata, yaml.Unmarshal(text, &metadata)
	}
}
