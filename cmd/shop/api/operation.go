// SPDX-License-Identifier: MIT

package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/labstack/echo/v4"
)

// operation is a route of openapi.yaml.
type operation struct {
	route  *routers.Route
	public bool            // needs no API key
	admin  bool            // needs the API key of an administrator
	body   bool            // takes a body
	empty  bool            // the body is optional
	key    bool            // takes an Idempotency-Key
	wallet bool            // … and stores it in MongoDB
	query  map[string]bool // names of its query parameters
}

// operationTable maps method and Echo path to the operation.
type operationTable map[string]*operation

// ctxOperation is the key of the operation in an echo.Context.
const ctxOperation = "operation"

// operations reads the embedded spec, once: validation and the generated server are of
// one version.
var operations = sync.OnceValues(func() (operationTable, error) {
	spec, err := GetSpec()
	if err != nil {
		return nil, fmt.Errorf("api: the embedded spec: %w", err)
	}
	// Values are validated as those of OpenAPI 3.0. For 3.1, kin-openapi compiles the schema of each value anew, in
	// each request. What 3.0 does not know, if and then, the handler checks; the tests compare both.
	spec.OpenAPI = "3.0.3"
	ops := operationTable{}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			route := &routers.Route{Spec: spec, Server: spec.Servers[0], Path: path, PathItem: item, Method: method, Operation: op}
			ops[method+" "+echoPath(path)] = newOperation(route)
		}
	}
	return ops, nil
})

// newOperation computes once what each request needs from the spec.
func newOperation(route *routers.Route) *operation {
	security := route.Spec.Security
	if route.Operation.Security != nil {
		security = *route.Operation.Security
	}
	op := &operation{
		route: route, public: len(security) == 0,
		admin: requires(security, "adminKey"), body: route.Operation.RequestBody != nil, query: map[string]bool{},
	}
	if op.body {
		op.empty = !route.Operation.RequestBody.Value.Required
	}
	op.key = route.Operation.Parameters.GetByInAndName(openapi3.ParameterInHeader, headerKey) != nil
	op.wallet = slices.Contains(route.Operation.Tags, "wallets")
	for _, p := range route.Operation.Parameters {
		if p.Value.In == openapi3.ParameterInQuery {
			op.query[p.Value.Name] = true
		}
	}
	return op
}

func requires(security openapi3.SecurityRequirements, scheme string) bool {
	for _, s := range security {
		if _, ok := s[scheme]; ok {
			return true
		}
	}
	return false
}

// echoPath writes /v1/orders/{id} as /v1/orders/:id.
func echoPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// find puts the operation into the context. Without an operation Echo's own handler
// replies 404 or 405 (204 with Allow for OPTIONS), and no further middleware runs.
func (t operationTable) find(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		op := t[c.Request().Method+" "+c.Path()]
		if op == nil {
			return c.Handler()(c)
		}
		c.Set(ctxOperation, op)
		c.Request().Pattern = op.route.Method + " " + op.route.Path // as net/http does: a trace is named by it
		return next(c)
	}
}

// operationOf is not nil in middleware inside find.
func operationOf(c echo.Context) *operation { return c.Get(ctxOperation).(*operation) }

// pathParams returns the unescaped path parameters: Echo leaves them escaped if the path was.
func pathParams(c echo.Context) (map[string]string, error) {
	params := map[string]string{}
	for i, name := range c.ParamNames() {
		value := c.ParamValues()[i]
		if c.Request().URL.RawPath != "" {
			var err error
			if value, err = url.PathUnescape(value); err != nil {
				return nil, withDetail(errMalformed, "The path is not properly escaped.")
			}
		}
		params[name] = value
	}
	return params, nil
}
