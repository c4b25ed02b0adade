// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"
)

// trimmed are options of kong: a setting is read without the white space around it, and so is each member of a list. A
// secret that is mounted as a file often ends with a newline, and a list is often written with a blank after the comma.
func trimmed() []kong.Option {
	inner := kong.NewRegistry().RegisterDefaults()
	text := inner.ForType(reflect.TypeFor[string]())
	return []kong.Option{
		kong.KindMapper(reflect.String, kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
			err := text.Decode(ctx, target)
			target.SetString(strings.TrimSpace(target.String()))
			return err
		})),
		kong.KindMapper(reflect.Slice, kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
			if err := trimList(ctx); err != nil {
				return err
			}
			return inner.ForType(target.Type()).Decode(ctx, target)
		})),
	}
}

// trimList trims the members of a list that comes next, and refuses empty ones: an empty address of etcd, for example, is
// one that is missing.
func trimList(ctx *kong.DecodeContext) error {
	token := ctx.Scan.Peek()
	list, ok := token.Value.(string)
	if !ok || list == "" || ctx.Value.Flag == nil {
		return nil
	}
	members := kong.SplitEscaped(list+" ", ctx.Value.Tag.Sep) // which drops an empty last member
	for i, member := range members {
		if members[i] = strings.TrimSpace(member); members[i] == "" {
			return errors.New("the list has an empty member")
		}
	}
	ctx.Scan.Pop()
	ctx.Scan.PushTyped(kong.JoinEscaped(members, ctx.Value.Tag.Sep), token.Type)
	return nil
}

// checkURL refuses a URL that a driver would take for another one than was meant. Its error shows no part of the URL.
//
// An @ after the hosts means that a character of the password ended them too early: the rest of the password would be a
// name in the log.
func checkURL(flag, value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return fmt.Errorf("%s: the address has a newline, a blank or another control character in it", flag)
	}
	_, rest, ok := strings.Cut(value, "://")
	if end := strings.IndexAny(rest, "/?#"); ok && end >= 0 {
		after := rest[end:]
		if after[0] == '/' { // a parameter may have an @
			after, _, _ = strings.Cut(after, "?")
		}
		if strings.Contains(after, "@") {
			return fmt.Errorf("%s: an @ stands after the hosts (not shown, because it may be a part of a password): "+
				"in a password write @ as %%40, / as %%2F, : as %%3A, ? as %%3F and # as %%23", flag)
		}
	}
	return nil
}
