package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// authenticate finds out whose key it is, before anything is read of the body.
// All reasons to refuse look the same from outside.
func (s *Server) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		op := operationOf(c)
		if op.public {
			return next(c)
		}
		r := c.Request()
		key, ok := bearer(r.Header)
		if !ok {
			return errUnauthorized
		}
		client, err := s.keyring.client(r.Context(), key, c.RealIP())
		if err != nil {
			return err
		}
		// Into the request's context, before anything can refuse: the log line names the client too.
		c.SetRequest(r.WithContext(context.WithValue(r.Context(), callerKey{}, client)))
		if op.admin && !client.Admin {
			return errForbidden
		}
		return next(c)
	}
}

// bearer reads Authorization: Bearer KEY, the scheme in any case. Two such
// headers are none: which of them would count?
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	key = strings.TrimLeft(key, " ")
	return key, strings.EqualFold(scheme, "Bearer") && plausible(key)
}

type callerKey struct{}

// callerOf is the client whose key came with the request; the zero Client on public routes.
func callerOf(ctx context.Context) Client {
	client, _ := ctx.Value(callerKey{}).(Client)
	return client
}
