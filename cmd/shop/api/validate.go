// SPDX-License-Identifier: MIT

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/labstack/echo/v4"
)

// checkJSON accepts exactly one JSON value. A json.Decoder would ignore data after it.
func checkJSON(h http.Header, data []byte) error {
	mediaType, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if len(data) == 0 {
		return withDetail(errMalformed, "There is no body.")
	}
	charset := params["charset"]
	if err != nil || len(h.Values("Content-Type")) > 1 || mediaType != typeJSON || h.Get("Content-Encoding") != "" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return errMediaType
	}
	if !json.Valid(data) {
		return withDetail(errMalformed, "The body is not JSON.")
	}
	if name, twice := memberTwice(json.NewDecoder(bytes.NewReader(data))); twice {
		return withDetail(errMalformed, "The member %.64q occurs twice in one object.", name)
	}
	return nil
}

// jsonToken matches the strings and the numbers of JSON.
var jsonToken = regexp.MustCompile(`"(\\.|[^"\\])*"|-?[0-9.eE+-]+`)

// integers writes 2.0 as 2. JSON Schema takes both for the same integer, encoding/json does not.
func integers(data []byte) []byte {
	if !bytes.Contains(data, []byte(".0")) {
		return data
	}
	return jsonToken.ReplaceAllFunc(data, func(token []byte) []byte {
		whole, fraction, found := bytes.Cut(token, []byte("."))
		if token[0] == '"' || !found || len(bytes.Trim(fraction, "0")) > 0 {
			return token
		}
		return whole
	})
}

// options bind the validated value itself to the request's struct: a second decoding
// would match member names case-insensitively.
var options = &openapi3filter.Options{
	KeepValidatedValue: true,
	AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, // authenticate did it
}

// validate checks the request against openapi.yaml.
func validate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		op, r := operationOf(c), c.Request()
		query, err := url.ParseQuery(r.URL.RawQuery) // URL.Query drops malformed pairs
		if err != nil {
			return withDetail(errMalformed, "The query is not properly escaped.")
		}
		for name, values := range query {
			if !op.query[name] || len(values) > 1 {
				return withDetail(errMalformed, "The query has an unknown parameter, or a parameter twice.")
			}
			if name == queryStrategy {
				values[0] = strategyName(values[0])
			}
		}
		params, err := pathParams(c)
		if err != nil {
			return err
		}
		err = openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
			Request: r, PathParams: params, QueryParams: query, Route: op.route, Options: options,
		})
		if err != nil {
			return refuse(err)
		}
		return next(c)
	}
}

// refuse maps the validator's errors: a request that cannot be parsed is malformed
// (400), a body that violates the schema is invalid (422).
func refuse(err error) error {
	var at *openapi3filter.RequestError
	if !errors.As(err, &at) {
		return err
	}
	if at.Parameter != nil && at.Parameter.Name == headerKey {
		if _, err := parseKey(at.Input.Request.Header.Get(headerKey)); err != nil {
			return err // clearer than the error of the pattern
		}
	}
	reason := "does not have the expected form"
	schema, isSchema := errors.AsType[*openapi3.SchemaError](err)
	if isSchema {
		reason = reasonOf(schema)
	}
	switch {
	case at.Parameter != nil:
		return withDetail(errMalformed, "The parameter %s: %s.", at.Parameter.Name, reason)
	case isSchema:
		pointer := "/" + strings.Join(schema.JSONPointer(), "/")
		return &detailed{err: errInvalid, detail: "The body: " + reason + ".", pointer: pointer}
	default:
		return withDetail(errMalformed, "The body %s.", reason)
	}
}

// reasonOf is the validator's reason, with numbers as a client writes them.
func reasonOf(e *openapi3.SchemaError) string {
	if _, ok := e.Value.(json.Number); ok {
		return "number is too large" // it exceeds a float64; the validator names its own types
	}
	if e.SchemaField != "minimum" && e.SchemaField != "maximum" {
		return e.Reason
	}
	words := strings.Fields(e.Reason)
	bound, err := strconv.ParseFloat(words[len(words)-1], 64)
	if err != nil {
		return e.Reason
	}
	words[len(words)-1] = strconv.FormatFloat(bound, 'f', -1, 64)
	return strings.Join(words, " ")
}

// memberTwice returns the first member name that occurs twice in an object of valid
// JSON. RFC 8259 does not define which of the two counts, and parsers differ: a proxy may
// check one and the shop use the other. Names are compared after decoding, so "a" and
// "\u0061" are equal.
func memberTwice(d *json.Decoder) (string, bool) {
	type level struct {
		names map[string]bool // nil: an array
		value bool            // of an object: the name was read, its value comes next
	}
	d.UseNumber()         // the schema refuses 1e400
	levels := []level{{}} // the document itself, treated as an array of one
	for {
		token, err := d.Token()
		if err != nil {
			return "", false // the end
		}
		at := &levels[len(levels)-1]
		if name, ok := token.(string); ok && at.names != nil && !at.value {
			if at.names[name] {
				return name, true
			}
			at.names[name], at.value = true, true
			continue
		}
		at.value = false
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
	}
}
