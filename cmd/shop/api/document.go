// SPDX-License-Identifier: MIT

package api

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:embed openapi.yaml
var source []byte

// Document returns openapi.yaml as JSON. The merge keys of the YAML, which not every tool reads, are resolved.
func Document() ([]byte, error) {
	spec, err := openapi3.NewLoader().LoadFromData(source)
	if err != nil {
		return nil, fmt.Errorf("api: openapi.yaml: %w", err)
	}
	for name := range spec.Extensions {
		if strings.HasPrefix(name, "x-") { // what was merged
			delete(spec.Extensions, name)
		}
	}
	return spec.MarshalJSON()
}
