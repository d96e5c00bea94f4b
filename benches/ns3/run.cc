/* One run of traces/ns3/more_runs.json in ns-3.37: a greedy flow through a bottleneck whose rate and delay may
 * change.
 *
 *   source --access_mbps-- left --rates_mbps-- right --access_mbps, half the RTT each way-- sink
 *
 * Arguments are the run's parameters, name=value, and `start_s`. Prints the metrics as a line of JSON. Means are over
 * the time from the flow's start to the end; a value that is not known yet counts as 0.
 */
#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
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
std::map<std::string, std::string> g_parameters;

const std::string&
Text(const std::string& name)
{
    auto found = g_parameters.find(name);
    if (found == g_parameters.end())
    {
        NS_FATAL_ERROR("no " << name);
    }
    return found->second;
}

std::vector<double>
Numbers(const std::string& name)
{
    std::vector<double> numbers;
    std::stringstream list(Text(name));
    for (std::string part; std::getline(list, part, ',');)
    {
        numbers.push_back(std::stod(part));
    }
    return numbers;
}

double
Number(const std::string& name)
{
    return Numbers(name).at(0);
}

/* The mean over time of a value that holds until the next one, from the first one on. */
class Mean
{
  public:
    void Set(double value)
    {
        double now = Simulator::Now().GetSeconds();
        m_sum += m_value * (now - m_since);
        m_first = m_isSet ? m_first : now;
        m_isSet = true;
        m_value = value;
        m_since = now;
    }

    double Get()
    {
        Set(m_value);
        return m_sum / (m_since - m_first);
    }

  private:
    double m_sum = 0;
    double m_value = 0;
    double m_since = 0;
    double m_first = 0;
    bool m_isSet = false;
};

Mean g_window;
Mean g_inFlight;
Mean g_srtt;
Mean g_queue;
uint64_t g_drops = 0;
uint64_t g_timeouts = 0;
uint64_t g_repairs = 0;
SequenceNumber32 g_sentUpTo(0);

void
OnWindow(uint32_t, uint32_t bytes)
{
    g_window.Set(bytes / Number("mss"));
}

void
OnInFlight(uint32_t, uint32_t bytes)
{
    g_inFlight.Set(bytes / Number("mss"));
}

void
OnSrtt(Time, Time srtt)
{
    g_srtt.Set(srtt.GetSeconds() * 1e3);
}

void
OnState(TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t state)
{
    g_timeouts += state == TcpSocketState::CA_LOSS;
}

void
OnSent(Ptr<const Packet> packet, const TcpHeader& header, Ptr<const TcpSocketBase>)
{
    SequenceNumber32 end = header.GetSequenceNumber() + packet->GetSize();
    if (packet->GetSize() > 0)
    {
        g_repairs += end <= g_sentUpTo;
        g_sentUpTo = std::max(g_sentUpTo, end);
    }
}

void
OnQueue(uint32_t, uint32_t packets)
{
    g_queue.Set(packets);
}

void
OnDrop(Ptr<const QueueDiscItem>)
{
    ++g_drops;
}

void
SetDefaults()
{
    auto type = [](const std::string& name) { return TypeId::LookupByName("ns3::" + Text(name)); };
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(type("cca")));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(type("recovery")));
    auto set = [](const std::string& key, const std::string& name) {
        Config::SetDefault("ns3::" + key, StringValue(Text(name)));
    };
    set("TcpSocket::SegmentSize", "mss");
    set("TcpSocket::InitialCwnd", "initial_cwnd");
    set("TcpSocket::DelAckCount", "delack");
    set("TcpSocket::SndBufSize", "sndbuf");
    set("TcpSocket::RcvBufSize", "rcvbuf");
    set("TcpSocketBase::Sack", "sack");
    set("TcpSocketBase::Timestamp", "timestamps");
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(Number("min_rto_s"))));
    RngSeedManager::SetSeed(uint32_t(Number("seed")));
    RngSeedManager::SetRun(uint64_t(Number("run")));
}

NetDeviceContainer
Connect(Ptr<Node> a, Ptr<Node> b, double mbit, double delayMs, const std::string& queue)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(mbit * 1e6))));
    link.SetChannelAttribute("Delay", TimeValue(Seconds(delayMs * 1e-3)));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(queue));
    return link.Install(a, b);
}

void
Change(NetDeviceContainer bottleneck, Ptr<Channel> path, double mbit, double delayMs)
{
    for (uint32_t end = 0; end < 2; ++end)
    {
        DynamicCast<PointToPointNetDevice>(bottleneck.Get(end))
            ->SetDataRate(DataRate(uint64_t(mbit * 1e6)));
    }
    path->SetAttribute("Delay", TimeValue(Seconds(delayMs * 1e-3)));
}

void
Run()
{
    SetDefaults();
    NodeContainer nodes(4);
    InternetStackHelper().Install(nodes);
    Ipv4AddressHelper addresses("10.1.0.0", "255.255.255.252");
    auto number = [&](const NetDeviceContainer& devices) {
        Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
        TrafficControlHelper().Uninstall(devices);
        addresses.NewNetwork();
        return interfaces;
    };
    std::vector<double> rates = Numbers("rates_mbps");
    std::vector<double> rtts = Numbers("rtt_series_ms");
    rtts = rtts.empty() ? std::vector<double>(rates.size(), Number("rtts_ms")) : rtts;
    double access = Number("access_mbps");
    number(Connect(nodes.Get(0), nodes.Get(1), access, 0, "100000p"));
    NetDeviceContainer path =
        Connect(nodes.Get(2), nodes.Get(3), access, rtts.at(0) / 2, "100000p");
    Ipv4Address sink = number(path).GetAddress(1);
    NetDeviceContainer bottleneck =
        Connect(nodes.Get(1), nodes.Get(2), rates.at(0), 0, Text("devq"));
    number(bottleneck);
    std::string kind = Text("qdisc");
    kind = kind == "FifoQueueDisc" ? kind : kind + "QueueDisc";
    TrafficControlHelper control;
    control.SetRootQueueDisc("ns3::" + kind, "MaxSize", StringValue(Text("qlen")));
    Ptr<QueueDisc> qdisc = control.Install(bottleneck.Get(0)).Get(0);
    qdisc->TraceConnectWithoutContext("PacketsInQueue", MakeCallback(&OnQueue));
    qdisc->TraceConnectWithoutContext("Drop", MakeCallback(&OnDrop));
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    PacketSinkHelper receiver("ns3::TcpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), PORT));
    Ptr<PacketSink> received = DynamicCast<PacketSink>(receiver.Install(nodes.Get(3)).Get(0));
    BulkSendHelper greedy("ns3::TcpSocketFactory", InetSocketAddress(sink, PORT));
    greedy.SetAttribute("MaxBytes", UintegerValue(0));
    greedy.SetAttribute("SendSize", UintegerValue(uint32_t(Number("mss"))));
    double startS = Number("start_s");
    Ptr<BulkSendApplication> sender =
        DynamicCast<BulkSendApplication>(greedy.Install(nodes.Get(0)).Get(0));
    sender->SetStartTime(Seconds(startS));
    // The application makes its socket as it starts.
    Simulator::Schedule(Seconds(startS) + NanoSeconds(1), [sender] {
        Ptr<Socket> socket = sender->GetSocket();
        for (Mean* mean : {&g_window, &g_inFlight, &g_srtt, &g_queue})
        {
            mean->Set(0);
        }
        socket->TraceConnectWithoutContext("CongestionWindow", MakeCallback(&OnWindow));
        socket->TraceConnectWithoutContext("BytesInFlight", MakeCallback(&OnInFlight));
        socket->TraceConnectWithoutContext("RTT", MakeCallback(&OnSrtt));
        socket->TraceConnectWithoutContext("CongState", MakeCallback(&OnState));
        socket->TraceConnectWithoutContext("Tx", MakeCallback(&OnSent));
    });
    std::vector<double> times = Numbers("times_s");
    for (size_t step = 1; step < times.size(); ++step)
    {
        Simulator::Schedule(Seconds(times[step]),
                            &Change,
                            bottleneck,
                            path.Get(0)->GetChannel(),
                            rates.at(step),
                            rtts.at(step) / 2);
    }
    double stopS = Number("stop_s");
    Simulator::Stop(Seconds(stopS));
    Simulator::Run();
    std::printf("{\"mean_throughput_l4\":%.4f,\"mean_cwnd_l4\":%.3f,\"mean_in_flight_l4\":%.3f,"
                "\"mean_srtt_l4\":%.3f,\"total_rtos_l4\":%lu,\"total_retransmissions_l4\":%lu,"
                "\"mean_qdisc_length_l2\":%.3f,\"total_qdisc_drops_l2\":%lu}\n",
                double(received->GetTotalRx()) * 8e-6 / (stopS - startS),
                g_window.Get(),
                g_inFlight.Get(),
                g_srtt.Get(),
                g_timeouts,
                g_repairs,
                g_queue.Get(),
                g_drops);
}

} // namespace

int
main(int argc, char* argv[])
{
    for (int i = 1; i < argc; ++i)
    {
        std::string argument = argv[i];
        size_t end = argument.find('=');
        if (end == std::string::npos)
        {
            std::fprintf(stderr, "usage: run NAME=VALUE..\n");
            return 2;
        }
        g_parameters[argument.substr(0, end)] = argument.substr(end + 1);
    }
    Run();
    return 0;
}
