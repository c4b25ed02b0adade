package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"shop/wallet"
	"shop/wallet/bonus"
)

// walletSettings say how wallets are written.
type walletSettings struct {
	Strategy string `name:"wallet-strategy" env:"SHOP_WALLET_STRATEGY" default:"lockid" help:"How wallets are written."`
	BonusURL string `name:"bonus-url" env:"SHOP_BONUS_URL" placeholder:"URL" help:"Service that says what bonus a credit gets, as in http://127.0.0.1:8090: it is sent POST /v1/bonuses. Without it there is no bonus; the lab has a service of its own."`
}

// validate keeps what loses money out of any shop that is not a lab.
func (s walletSettings) validate(lab bool) error {
	strategy, ok := findWalletStrategy(s.Strategy)
	switch {
	case !ok:
		return fmt.Errorf("--wallet-strategy %s: there is none of that name; there are: %s", s.Strategy, strings.Join(walletStrategyNames(), ", "))
	case !strategy.Safe && !lab:
		return fmt.Errorf("--wallet-strategy %s loses money, or gives a bonus twice; to watch it, add --lab", s.Strategy)
	}
	if s.BonusURL == "" {
		return nil
	}
	if u, err := url.Parse(s.BonusURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("--bonus-url: want the address of a service, as in http://127.0.0.1:8090")
	}
	return nil
}

// open makes a till, closed if MongoDB does not answer at once.
func (s walletSettings) open(ctx context.Context, mongo mongoSettings, lab bool, config wallet.Config, log *slog.Logger) (_ *till, err error) {
	t := &till{strategy: s.Strategy, log: log, stop: func() {}}
	if mongo.MongoURL == "" {
		log.Warn("there are no wallets", "error", errNoMongo)
		return t, nil
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if config.Bonus, err = t.outside(s.BonusURL, lab); err != nil {
		return nil, err
	}
	if err := t.connect(mongo); err != nil {
		return nil, err
	}
	config.Database, config.Strategy = t.db, s.Strategy
	if t.service, err = wallet.New(config); err != nil {
		return nil, err
	}
	t.watch(ctx)
	return t, nil
}

// outside is who is asked for a bonus; nil: nobody.
func (t *till) outside(bonusURL string, lab bool) (wallet.Bonus, error) {
	if bonusURL == "" && lab {
		var err error
		if t.lab, err = bonus.Serve(); err != nil {
			return nil, err
		}
		bonusURL = t.lab.URL()
	}
	if bonusURL == "" {
		return nil, nil
	}
	t.bonus = newBonusClient(strings.TrimSuffix(bonusURL, "/"))
	return t.bonus.ask, nil
}

func findWalletStrategy(name string) (wallet.Strategy, bool) {
	all := wallet.Strategies()
	i := slices.IndexFunc(all, func(s wallet.Strategy) bool { return s.Name == name })
	if i < 0 {
		return wallet.Strategy{}, false
	}
	return all[i], true
}

func walletStrategyNames() (list []string) {
	for _, s := range wallet.Strategies() {
		list = append(list, s.Name)
	}
	return list
}
