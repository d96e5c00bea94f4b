/* The scenarios of crates/sim/examples/speed in ns-3, only to measure their cost.
 *
 *   source i --10 Gbit/s-- left --bottleneck-- right --10 Gbit/s, half the RTT each way-- sink i
 *
 * Settings: docs of ns-3.37, and those of ccperf #60 (segments of 1448 B, initial window 10, an
 * acknowledgement per segment, SACK, timestamps, PRR, a device queue of one packet under the FIFO).
 * Only three counters are connected as traces, so ns-3 runs at full speed. Prints a line of JSON.
 */
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace
{

constexpr uint16_t PORT = 5000;

struct Scenario
{
    std::string name;
    std::string algorithm;
    uint32_t pairs;
    double rateMbit;
    double rttMs;
    uint32_t queuePackets;
    double stopS;
    uint32_t sendBuffer;
    uint32_t receiveBuffer;
    double stepAtS;        // 0: the rate does not change
    double stepMbit;
    double requestsMbit;   // 0: one endless flow for each pair
};

const std::vector<Scenario> SCENARIOS = {
    {"b1", "ns3::TcpNewReno", 1, 64, 15, 20, 15, 4000000, 6 << 20, 5, 16, 0},
    {"b2", "ns3::TcpNewReno", 10, 1000, 40, 3300, 30, 4000000, 6 << 20, 0, 0, 0},
    {"b3", "ns3::TcpCubic", 60, 96, 50, 400, 60, 4000000, 6 << 20, 0, 0, 84},
    {"overshoot", "ns3::TcpCubic", 1, 1000, 40, 1000, 3, 32000000, 32000000, 0, 0, 0},
};

uint64_t g_packets = 0;
uint64_t g_drops = 0;
uint64_t g_requests = 0;
uint64_t g_completed = 0;

void
CountPacket(Ptr<const Packet>)
{
    ++g_packets;
}

void
CountDrop(Ptr<const QueueDiscItem>)
{
    ++g_drops;
}

void
SetDefaults(const Scenario& scenario)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       TypeIdValue(TypeId::LookupByName(scenario.algorithm)));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       TypeIdValue(TypeId::LookupByName("ns3::TcpPrrRecovery")));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(scenario.sendBuffer));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(scenario.receiveBuffer));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(1)));
    // With the default of 120 s every connection of B3 would stay in TIME_WAIT to the end.
    Config::SetDefault("ns3::TcpSocketBase::MaxSegLifetime", DoubleValue(0.25));
}

/* Nodes, links and addresses. */
struct Network
{
    NodeContainer sources;
    NodeContainer sinks;
    NodeContainer routers;
    std::vector<Ipv4Address> addresses; // of the sinks
    Ptr<PointToPointNetDevice> forward;
    Ptr<PointToPointNetDevice> reverse;
};

NetDeviceContainer
Connect(Ptr<Node> a, Ptr<Node> b, double mbit, double delayMs, const std::string& queue)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(mbit * 1e6))));
    link.SetChannelAttribute("Delay", TimeValue(MicroSeconds(int64_t(delayMs * 1e3))));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(queue));
    return link.Install(a, b);
}

Network
Build(const Scenario& scenario)
{
    Network network;
    network.sources.Create(scenario.pairs);
    network.sinks.Create(scenario.pairs);
    network.routers.Create(2);
    InternetStackHelper stack;
    stack.InstallAll();
    Ipv4AddressHelper addresses("10.1.0.0", "255.255.255.252");
    auto number = [&](const NetDeviceContainer& devices) {
        Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
        // Assign installs a qdisc of its own; an access link needs none.
        TrafficControlHelper().Uninstall(devices);
        addresses.NewNetwork();
        return interfaces;
    };
    Ptr<Node> left = network.routers.Get(0);
    Ptr<Node> right = network.routers.Get(1);
    for (uint32_t i = 0; i < scenario.pairs; ++i)
    {
        number(Connect(network.sources.Get(i), left, 10000, 0, "100000p"));
        Ptr<Node> sink = network.sinks.Get(i);
        auto interfaces = number(Connect(right, sink, 10000, scenario.rttMs / 2, "100000p"));
        network.addresses.push_back(interfaces.GetAddress(1));
    }
    NetDeviceContainer bottleneck = Connect(left, right, scenario.rateMbit, 0, "1p");
    number(bottleneck);
    TrafficControlHelper fifo;
    fifo.SetRootQueueDisc("ns3::FifoQueueDisc",
                          "MaxSize",
                          StringValue(std::to_string(scenario.queuePackets) + "p"));
    QueueDiscContainer qdiscs = fifo.Install(bottleneck);
    qdiscs.Get(0)->TraceConnectWithoutContext("Drop", MakeCallback(&CountDrop));
    network.forward = DynamicCast<PointToPointNetDevice>(bottleneck.Get(0));
    network.reverse = DynamicCast<PointToPointNetDevice>(bottleneck.Get(1));
    for (auto device : {network.forward, network.reverse})
    {
        device->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&CountPacket));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    return network;
}

void
StartGreedy(const Scenario& scenario, const Network& network)
{
    for (uint32_t i = 0; i < scenario.pairs; ++i)
    {
        BulkSendHelper greedy("ns3::TcpSocketFactory",
                              InetSocketAddress(network.addresses[i], PORT));
        greedy.SetAttribute("MaxBytes", UintegerValue(0));
        greedy.SetAttribute("SendSize", UintegerValue(1448));
        greedy.Install(network.sources.Get(i)).Start(Seconds(0));
    }
}

/* One request: a connection, `bytes` through it, and its end. */
class Request : public SimpleRefCount<Request>
{
  public:
    Request(Ptr<Node> node, uint32_t bytes)
        : m_socket(Socket::CreateSocket(node, TcpSocketFactory::GetTypeId())),
          m_left(bytes)
    {
    }

    static void Start(Ptr<Node> node, Ipv4Address to, uint32_t bytes)
    {
        Ptr<Request> request = Create<Request>(node, bytes);
        Ptr<Socket> socket = request->m_socket;
        // The bound reference keeps the request alive as long as its socket.
        socket->SetConnectCallback(MakeCallback(&Request::Write, request),
                                   MakeNullCallback<void, Ptr<Socket>>());
        socket->SetSendCallback(MakeCallback(&Request::WriteMore, request));
        socket->SetCloseCallbacks(MakeCallback(&Request::Closed, request),
                                  MakeNullCallback<void, Ptr<Socket>>());
        socket->Bind();
        socket->Connect(InetSocketAddress(to, PORT));
        ++g_requests;
    }

  private:
    void WriteMore(Ptr<Socket> socket, uint32_t)
    {
        Write(socket);
    }

    void Write(Ptr<Socket> socket)
    {
        while (m_left > 0)
        {
            int sent = socket->Send(Create<Packet>(std::min(m_left, 14480U)));
            if (sent <= 0)
            {
                return;
            }
            m_left -= sent;
        }
        if (!m_isClosed)
        {
            m_isClosed = true;
            socket->Close();
        }
    }

    void Closed(Ptr<Socket>)
    {
        ++g_completed;
    }

    Ptr<Socket> m_socket;
    uint32_t m_left;
    bool m_isClosed = false;
};

/* Poisson arrivals of requests: nine of ten log-uniform over 200 B to 5 kB, the tenth Pareto with
 * exponent 1 over 5 kB to 1 MB; the mean is 4005 B. */
class Arrivals
{
  public:
    Arrivals(const Network& network, double perSecond)
        : m_network(network),
          m_perSecond(perSecond),
          m_uniform(CreateObject<UniformRandomVariable>())
    {
        m_uniform->SetStream(1);
    }

    void Next()
    {
        double gapS = -std::log(1 - m_uniform->GetValue()) / m_perSecond;
        Simulator::Schedule(Seconds(gapS), &Arrivals::Arrive, this);
    }

  private:
    void Arrive()
    {
        uint32_t pair = m_next++ % m_network.sources.GetN();
        Request::Start(m_network.sources.Get(pair), m_network.addresses[pair], Size());
        Next();
    }

    uint32_t Size()
    {
        double u = m_uniform->GetValue();
        if (u < 0.9)
        {
            return uint32_t(200 * std::pow(25.0, u / 0.9));
        }
        double share = (u - 0.9) / 0.1;
        return uint32_t(5000 / (1 - share * (1 - 5e3 / 1e6)));
    }

    const Network& m_network;
    double m_perSecond;
    Ptr<UniformRandomVariable> m_uniform;
    uint32_t m_next = 0;
};

void
ListenAt(const Network& network)
{
    PacketSinkHelper sink("ns3::TcpSocketFactory",
                          InetSocketAddress(Ipv4Address::GetAny(), PORT));
    sink.Install(network.sinks).Start(Seconds(0));
}

/* Servers that close a connection when the other end has, which a PacketSink never does. Otherwise
 * every connection of B3 would stay in CLOSE_WAIT here and in FIN_WAIT_2 there to the end. */
class Servers
{
  public:
    explicit Servers(const Network& network)
    {
        for (uint32_t i = 0; i < network.sinks.GetN(); ++i)
        {
            Ptr<Socket> socket =
                Socket::CreateSocket(network.sinks.Get(i), TcpSocketFactory::GetTypeId());
            socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
            socket->Listen();
            socket->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                      MakeCallback(&Servers::Accept));
            m_listening.push_back(socket);
        }
    }

  private:
    static void Accept(Ptr<Socket> socket, const Address&)
    {
        socket->SetRecvCallback(MakeCallback(&Servers::Read));
        socket->SetCloseCallbacks(MakeCallback(&Servers::Close),
                                  MakeNullCallback<void, Ptr<Socket>>());
    }

    static void Read(Ptr<Socket> socket)
    {
        for (Ptr<Packet> read = socket->Recv(); read && read->GetSize() > 0; read = socket->Recv())
        {
        }
    }

    static void Close(Ptr<Socket> socket)
    {
        socket->Close();
    }

    std::vector<Ptr<Socket>> m_listening;
};

void
SetRate(Ptr<PointToPointNetDevice> device, double mbit)
{
    device->SetDataRate(DataRate(uint64_t(mbit * 1e6)));
}

double
CpuSeconds()
{
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

void
Run(const Scenario& scenario)
{
    double before = CpuSeconds();
    SetDefaults(scenario);
    Network network = Build(scenario);
    constexpr double MEAN_REQUEST_BITS = 4005 * 8;
    Arrivals arrivals(network, scenario.requestsMbit * 1e6 / MEAN_REQUEST_BITS);
    std::unique_ptr<Servers> servers;
    if (scenario.requestsMbit > 0)
    {
        servers = std::make_unique<Servers>(network);
        arrivals.Next();
    }
    else
    {
        ListenAt(network);
        StartGreedy(scenario, network);
    }
    if (scenario.stepAtS > 0)
    {
        for (auto device : {network.forward, network.reverse})
        {
            Simulator::Schedule(Seconds(scenario.stepAtS), &SetRate, device, scenario.stepMbit);
        }
    }
    Simulator::Stop(Seconds(scenario.stopS));
    Simulator::Run();
    double cpu = CpuSeconds() - before;
    uint64_t events = Simulator::GetEventCount();
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf("{\"scenario\":\"%s\",\"cpu_s\":%.6f,\"packets\":%lu,\"events\":%lu,"
                "\"drops\":%lu,\"requests\":%lu,\"completed\":%lu,\"rss_mb\":%.1f}\n",
                scenario.name.c_str(),
                cpu,
                g_packets,
                events,
                g_drops,
                g_requests,
                g_completed,
                double(usage.ru_maxrss) / 1024);
}

} // namespace

int
main(int argc, char* argv[])
{
    std::string name = argc == 2 ? argv[1] : "";
    for (const Scenario& scenario : SCENARIOS)
    {
        if (scenario.name == name)
        {
            Run(scenario);
            return 0;
        }
    }
    std::fprintf(stderr, "usage: dumbbell b1|b2|b3|overshoot\n");
    return 2;
}
