// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ZooKeeper, as one server and as an ensemble of three, with a small heap. loadtest/bench
// needs the one server. The tests of locking/zklock start their own (package locktest).
var (
	_ = register(zookeeperKind("zookeeper", 1))
	_ = register(zookeeperKind("zookeeper3", 3))
)

func zookeeperKind(name string, members int) kind {
	return kind{
		name:     name,
		variable: "SHOP_ZOOKEEPER_SERVERS",
		byName:   true,
		members:  members,
		ports:    3, // clients, members, elections
		users:    []string{"nobody"},
		program: program{
			file: "java", apt: "default-jre-headless libzookeeper-java", brew: "openjdk zookeeper",
			dirs: []string{"/opt/homebrew/opt/openjdk/bin", "/usr/local/opt/openjdk/bin"},
			with: func() bool { return zookeeperJars() != "" },
		},
		setup: zookeeperSetup,
		argv:  zookeeperArgs,
		ready: zookeeperReady,
		url: func(i *instance) string {
			var servers []string
			for _, m := range i.cluster {
				servers = append(servers, m.addr())
			}
			return strings.Join(servers, ",")
		},
		stop:  syscall.SIGTERM,
		quick: syscall.SIGKILL,
	}
}

// zookeeperJars returns the class path of the server; empty: not all of it is installed. Debian keeps the
// libraries of all programs in one folder, Homebrew those of ZooKeeper in its own.
func zookeeperJars() string {
	var jars []string
	for _, name := range []string{"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java"} {
		jars = append(jars, filepath.Join("/usr/share/java", name+".jar"))
	}
	if !slices.ContainsFunc(jars, func(jar string) bool { return !isFile(jar) }) {
		return strings.Join(jars, ":")
	}
	for _, dir := range []string{"/opt/homebrew/opt/zookeeper/libexec/lib", "/usr/local/opt/zookeeper/libexec/lib"} {
		if found, _ := filepath.Glob(filepath.Join(dir, "zookeeper-[0-9]*.jar")); len(found) > 0 {
			return filepath.Join(dir, "*")
		}
	}
	return ""
}

// zookeeperSetup writes the settings. A tick of a second makes the shortest session timeout 2 s. The
// kernel keeps what a killed process has written, so the server need not sync its log.
func zookeeperSetup(_ context.Context, i *instance) error {
	settings := []string{
		"tickTime=1000", "initLimit=30", "syncLimit=3", "maxSessionTimeout=300000", "maxClientCnxns=0",
		"dataDir=" + i.Dir, "clientPortAddress=127.0.0.1", "clientPort=" + strconv.Itoa(i.Ports[0]),
		"forceSync=no", "preAllocSize=1024", "admin.enableServer=false", "4lw.commands.whitelist=envi,srvr",
	}
	if len(i.cluster) > 1 {
		settings = append(settings, "quorumListenOnAllIPs=false")
		for n, m := range i.cluster {
			settings = append(settings, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", n+1, m.Ports[1], m.Ports[2]))
		}
		if err := i.write(filepath.Join(i.Dir, "myid"), strconv.Itoa(slices.Index(i.cluster, i)+1)); err != nil {
			return err
		}
	}
	return i.write(zookeeperSettings(i), strings.Join(settings, "\n")+"\n")
}

func zookeeperSettings(i *instance) string { return filepath.Join(i.Dir, "zoo.cfg") }

func zookeeperArgs(i *instance) []string {
	return []string{
		"-Xms16m", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", // quick to start
		"-XX:-UsePerfData", "-Djava.io.tmpdir=" + i.Dir, // no file outside the folder
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", zookeeperJars(), "org.apache.zookeeper.server.quorum.QuorumPeerMain", zookeeperSettings(i),
	}
}

// zookeeperReady checks that the process on the port is this member, by its folder, and that it serves: a
// member of an ensemble does so when there is a leader.
func zookeeperReady(ctx context.Context, i *instance) error {
	environment, err := zookeeperAsk(ctx, i.addr(), "envi")
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(i.Dir)
	if err != nil {
		return err
	}
	if !strings.Contains(environment, "\nuser.dir="+dir+"\n") {
		return fmt.Errorf("a foreign ZooKeeper listens on %s", i.addr())
	}
	state, err := zookeeperAsk(ctx, i.addr(), "srvr")
	if err == nil && !strings.Contains(state, "\nMode: ") {
		err = fmt.Errorf("zookeeper replies %q", state)
	}
	return err
}

// zookeeperAsk sends a command of four letters. The server closes the connection after its reply.
func zookeeperAsk(ctx context.Context, addr, command string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(conn)
	return string(reply), err
}
