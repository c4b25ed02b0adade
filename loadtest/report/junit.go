// SPDX-License-Identifier: MIT

package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"shop/loadtest"
)

// The elements of JUnit XML, as CI systems read it.
type (
	testSuites struct {
		XMLName  xml.Name    `xml:"testsuites"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Suites   []testSuite `xml:"testsuite"`
	}
	testSuite struct {
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Time     string     `xml:"time,attr"`
		Cases    []testCase `xml:"testcase"`
		Out      string     `xml:"system-out,omitempty"`
	}
	testCase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Failure *failure `xml:"failure"`
	}
	failure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes a report as JUnit XML: a suite for each scenario, with a case for the verdict and one for
// each invariant. An invariant that a control is expected to break does not fail: the case of the verdict
// fails if the control is not caught.
func JUnit(w io.Writer, r loadtest.Report) error {
	all := testSuites{Name: "prove"}
	for _, s := range r.Scenarios {
		suite := suiteOf(result{s})
		all.Suites = append(all.Suites, suite)
		all.Tests, all.Failures = all.Tests+suite.Tests, all.Failures+suite.Failures
	}
	if whole := wholeSuite(r); whole.Tests > 0 {
		all.Suites = append(all.Suites, whole)
		all.Tests, all.Failures = all.Tests+whole.Tests, all.Failures+whole.Failures
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// wholeSuite returns a suite with a failed case for each thing that is wrong with the report as a whole.
func wholeSuite(r loadtest.Report) testSuite {
	suite := testSuite{Name: "prove"}
	fail := func(name, message string) {
		suite.Cases = append(suite.Cases, testCase{Class: "prove", Name: name, Failure: &failure{Message: message}})
		suite.Tests, suite.Failures = suite.Tests+1, suite.Failures+1
	}
	if text := r.CalledOff(); text != "" {
		fail("all scenarios ran", text)
	}
	if len(r.TooFew()) > 0 {
		fail("enough operations were checked for linearizability", r.Linearized())
	}
	return suite
}

func suiteOf(r result) testSuite {
	suite := testSuite{Name: r.Name(), Out: plain(r.Sentence())}
	if r.PerSecond > 0 {
		suite.Time = fmt.Sprintf("%.3f", float64(r.OK+r.Rejected)/r.PerSecond)
	}
	verdict := testCase{Class: r.Name(), Name: fmt.Sprintf("verdict is %s", r.Expect)}
	if !r.AsExpected {
		verdict.Failure = &failure{Message: fmt.Sprintf("%s, expected %s", r.Verdict, r.Expect), Text: plain(strings.Join(slices.Concat(r.Inconclusive, r.Hints), "\n"))}
	}
	suite.Cases = append(suite.Cases, verdict)
	for _, i := range r.Invariants() {
		if i.Code == r.Scenario.Flow.Number {
			continue
		}
		c := testCase{Class: r.Name(), Name: i.Name}
		if i.N != 0 && (r.Expect == loadtest.Safe || slices.Contains(r.Keeps, i.Code)) {
			c.Failure = &failure{Message: plain(fmt.Sprintf("%d: %s", i.N, i.Means)), Text: plain(strings.Join(r.Findings[i.Code].IDs, "\n"))}
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Tests = len(suite.Cases)
	for _, c := range suite.Cases {
		if c.Failure != nil {
			suite.Failures++
		}
	}
	return suite
}

// plain replaces the characters that XML cannot hold: the answers of a service may contain any.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0xFFFE || r == 0xFFFF {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
