// SPDX-License-Identifier: MIT

// Package reference serves a page that explains the API, and the document that it is made from.
//
//	/openapi.json  openapi.yaml as JSON: the document that the server validates requests against
//	/docs          the page: every operation, schema, example and error, with a form to send requests
//
// Neither needs an API key. Both are part of the program, and the page loads nothing from elsewhere.
//
// # The page
//
// RapiDoc renders it in the browser. A page rendered here would need no script, but also have no form, no search
// and no curl command for each request, and would be a second reader of OpenAPI to maintain. rapidoc/ has the file
// of the npm package rapidoc 9.3.8 as it was published, compressed, and the licences: MIT, of its parts also BSD.
//
// The Content-Security-Policy allows scripts of this server only, and no evaluation of text. RapiDoc sets styles in
// attributes, so styles are allowed inline.
//
// A key that is typed into the page stays in its tab, and is sent to this server only.
package reference
