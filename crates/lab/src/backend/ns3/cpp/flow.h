/* A flow, its hosts and their applications. */
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "link.h"

namespace
{

/* The client of one request. */
class Client : public SimpleRefCount<Client>
{
  public:
    Client(uint32_t flow, uint64_t number, uint64_t bytes)
        : m_flow(flow),
          m_number(number),
          m_left(bytes)
    {
    }

    void OnConnect(Ptr<Socket> socket)
    {
        socket->Send(Create<Packet>(REQUEST_BYTES));
    }

    void Read(Ptr<Socket> socket)
    {
        for (Ptr<Packet> read = socket->Recv(); read && read->GetSize() > 0; read = socket->Recv())
        {
            Tell('v', m_flow, read->GetSize());
            m_left -= std::min<uint64_t>(m_left, read->GetSize());
        }
        if (m_left == 0 && !m_isWhole)
        {
            m_isWhole = true;
            Tell('g', m_flow, m_number);
            socket->Close();
            --g_awaited;
            EndIfDone();
        }
    }

  private:
    uint32_t m_flow;
    uint64_t m_number;
    uint64_t m_left;
    bool m_isWhole = false;
};

/* The server of one request. */
class Server : public SimpleRefCount<Server>
{
  public:
    explicit Server(uint64_t bytes)
        : m_left(bytes)
    {
    }

    void Read(Ptr<Socket> socket)
    {
        for (Ptr<Packet> read = socket->Recv(); read && read->GetSize() > 0; read = socket->Recv())
        {
            m_isAsked = true;
        }
        Write(socket, 0);
    }

    void Write(Ptr<Socket> socket, uint32_t)
    {
        while (m_isAsked && m_left > 0)
        {
            uint64_t bytes = std::min<uint64_t>(m_left, socket->GetTxAvailable());
            if (bytes == 0 || socket->Send(Create<Packet>(uint32_t(bytes))) < 0)
            {
                return;
            }
            m_left -= bytes;
        }
        if (m_left == 0 && !m_isClosed)
        {
            m_isClosed = true;
            socket->Close();
        }
    }

  private:
    uint64_t m_left;
    bool m_isAsked = false;
    bool m_isClosed = false;
};

enum class Kind
{
    GREEDY,
    DATAGRAMS,
    REQUESTS,
};

/* A flow and both of its hosts. */
class Flow
{
  public:
    Kind kind;
    uint32_t number;
    uint16_t pair;
    Time start;
    Time stop;
    Time dataDelay;
    Time backDelay;
    std::vector<uint32_t> data;
    std::vector<uint32_t> back;
    uint32_t segments = 0;
    uint32_t payload = 0;
    uint8_t tos = 0;
    std::string algorithm;
    /* When datagrams are sent or answers requested, and the bytes of each answer. */
    std::vector<uint64_t> timesNs;
    std::vector<uint64_t> sizes;

    void Install(const std::vector<std::unique_ptr<Link>>& links, const NodeContainer& nodes)
    {
        NodeContainer hosts(2);
        InternetStackHelper().Install(hosts);
        Ptr<Node> sender = hosts.Get(0);
        Ptr<Node> receiver = hosts.Get(1);
        auto access = [](Ptr<Node> from, Ptr<Node> to, Time delay) {
            return Connect(from, to, ACCESS_RATE, delay, DEEP);
        };
        auto node = [&](uint32_t place) { return nodes.Get(place); };
        auto out = access(sender, node(links[data.front()]->from), dataDelay);
        auto in = access(node(links[data.back()]->to), receiver, Time(0));
        auto backOut = access(receiver, node(links[back.front()]->from), backDelay);
        auto backIn = access(node(links[back.back()]->to), sender, Time(0));
        m_address = AddressOf(in.Get(1));
        Ipv4Address source = AddressOf(out.Get(0));
        g_pairs[m_address.Get()] = pair;
        g_pairs[source.Get()] = pair;
        auto lay = [&](Ipv4Address to,
                       Ptr<NetDevice> first,
                       const std::vector<uint32_t>& way,
                       Ptr<NetDevice> last) {
            Route(to, first);
            for (uint32_t link : way)
            {
                Route(to, links[link]->Device());
            }
            Route(to, last);
        };
        lay(m_address, out.Get(0), data, in.Get(0));
        lay(source, backOut.Get(0), back, backIn.Get(0));
        // A client's packets have the address of the device that they leave by, whatever it binds to.
        Ipv4Address client = AddressOf(backOut.Get(0));
        g_pairs[client.Get()] = pair;
        lay(client, out.Get(0), data, in.Get(0));
        m_entrance = out.Get(1);
        m_source = source;
        m_receiver = receiver;
        switch (kind)
        {
        case Kind::GREEDY:
            Listen(receiver);
            Prepare(sender);
            break;
        case Kind::DATAGRAMS:
            PrepareDatagrams(sender, receiver);
            break;
        case Kind::REQUESTS:
            g_awaited += timesNs.size();
            SetAlgorithm(receiver, algorithm);
            Serve(sender);
            break;
        }
        PlanNext();
    }

  private:
    static void SetAlgorithm(Ptr<Node> host, const std::string& name)
    {
        TypeId type;
        bool isKnown = TypeId::LookupByNameFailSafe(name, &type);
        if (!isKnown && name == "ns3::TcpWestwoodPlus")
        {
            // Up to 3.37 it is a setting of TcpWestwood.
            isKnown = TypeId::LookupByNameFailSafe("ns3::TcpWestwood", &type);
            Config::SetDefault("ns3::TcpWestwood::ProtocolType", StringValue("WestwoodPlus"));
        }
        if (!isKnown)
        {
            Refuse("this ns-3 has no " + name);
        }
        host->GetObject<TcpL4Protocol>()->SetAttribute("SocketType", TypeIdValue(type));
    }

    void Listen(Ptr<Node> host)
    {
        // Algorithms with an ECN of their own need it at both ends.
        SetAlgorithm(host, algorithm);
        m_listener = Socket::CreateSocket(host, TcpSocketFactory::GetTypeId());
        // The sockets of connections are copies of this one, with its traces.
        m_listener->TraceConnectWithoutContext("Rx", MakeCallback(&Flow::OnData, this));
        m_listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
        m_listener->Listen();
        m_listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                      MakeCallback(&Flow::OnAccept, this));
    }

    void Prepare(Ptr<Node> host)
    {
        SetAlgorithm(host, algorithm);
        m_socket = Socket::CreateSocket(host, TcpSocketFactory::GetTypeId());
        m_socket->SetAttribute("InitialCwnd", UintegerValue(segments));
        if (tos > 0)
        {
            m_socket->SetIpTos(tos);
        }
        auto trace = [this](const char* name, const CallbackBase& callback) {
            if (!m_socket->TraceConnectWithoutContext(name, callback))
            {
                Refuse(std::string("no trace ") + name);
            }
        };
        trace("CongestionWindow", MakeCallback(&Flow::OnWindow, this));
        trace("BytesInFlight", MakeCallback(&Flow::OnFlight, this));
        trace("RTT", MakeCallback(&Flow::OnRtt, this));
        trace("RTO", MakeCallback(&Flow::OnRto, this));
        trace("CongState", MakeCallback(&Flow::OnState, this));
        trace("HighestRxAck", MakeCallback(&Flow::OnAck, this));
        trace("Tx", MakeCallback(&Flow::OnSent, this));
        m_socket->SetConnectCallback(MakeCallback(&Flow::OnConnect, this),
                                     MakeNullCallback<void, Ptr<Socket>>());
        m_socket->SetSendCallback(MakeCallback(&Flow::Write, this));
        UintegerValue size;
        m_socket->GetAttribute("SegmentSize", size);
        payload = uint32_t(size.Get());
        Simulator::Schedule(start, &Flow::Open, this);
        Simulator::Schedule(stop, &Flow::Stop, this);
    }

    void PrepareDatagrams(Ptr<Node> sender, Ptr<Node> receiver)
    {
        m_listener = Socket::CreateSocket(receiver, UdpSocketFactory::GetTypeId());
        m_listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
        m_listener->SetRecvCallback(MakeCallback(&Flow::ReadDatagrams, this));
        m_socket = Socket::CreateSocket(sender, UdpSocketFactory::GetTypeId());
        if (tos > 0)
        {
            m_socket->SetIpTos(tos);
        }
        m_socket->Bind();
        m_socket->Connect(InetSocketAddress(m_address, PORT));
    }

    void Serve(Ptr<Node> host)
    {
        SetAlgorithm(host, algorithm);
        m_listener = Socket::CreateSocket(host, TcpSocketFactory::GetTypeId());
        m_listener->SetAttribute("InitialCwnd", UintegerValue(segments));
        m_listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
        m_listener->Listen();
        m_listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                      MakeCallback(&Flow::OnAsked, this));
    }

    void PlanNext()
    {
        if (m_next < timesNs.size())
        {
            Time at = NanoSeconds(timesNs[m_next]);
            Simulator::Schedule(at - Simulator::Now(), &Flow::DoNext, this);
        }
    }

    void DoNext()
    {
        if (kind == Kind::DATAGRAMS)
        {
            Tell('x', number);
            m_socket->Send(Create<Packet>(payload));
        }
        else
        {
            Ask(m_next);
        }
        ++m_next;
        PlanNext();
    }

    void Ask(uint64_t place)
    {
        Tell('c', number, place);
        Ptr<Socket> socket = Socket::CreateSocket(m_receiver, TcpSocketFactory::GetTypeId());
        if (tos > 0)
        {
            socket->SetIpTos(tos);
        }
        // The bound reference keeps the client as long as its socket.
        Ptr<Client> client = Create<Client>(number, place, sizes[place]);
        socket->SetConnectCallback(MakeCallback(&Client::OnConnect, client),
                                   MakeNullCallback<void, Ptr<Socket>>());
        socket->SetRecvCallback(MakeCallback(&Client::Read, client));
        socket->Bind();
        Address own;
        socket->GetSockName(own);
        m_sizeByPort[InetSocketAddress::ConvertFrom(own).GetPort()] = sizes[place];
        socket->Connect(InetSocketAddress(m_source, PORT));
    }

    void OnAsked(Ptr<Socket> socket, const Address& client)
    {
        uint16_t port = InetSocketAddress::ConvertFrom(client).GetPort();
        Ptr<Server> server = Create<Server>(m_sizeByPort[port]);
        socket->SetRecvCallback(MakeCallback(&Server::Read, server));
        socket->SetSendCallback(MakeCallback(&Server::Write, server));
    }

    void ReadDatagrams(Ptr<Socket> socket)
    {
        while (socket->Recv())
        {
            Tell('y', number);
        }
    }

    void Open()
    {
        m_socket->Connect(InetSocketAddress(m_address, PORT));
    }

    /* The socket still sends its full buffer; these packets do not leave the host. */
    void Stop()
    {
        Tell('p', number, m_writtenBytes);
        m_isOver = true;
        Ptr<RateErrorModel> all = CreateObject<RateErrorModel>();
        all->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        all->SetRate(1);
        m_entrance->SetAttribute("ReceiveErrorModel", PointerValue(all));
    }

    void OnConnect(Ptr<Socket> socket)
    {
        Write(socket, 0);
    }

    void Write(Ptr<Socket> socket, uint32_t)
    {
        while (!m_isOver && socket->GetTxAvailable() >= payload &&
               socket->Send(Create<Packet>(payload)) >= 0)
        {
            m_writtenBytes += payload;
        }
    }

    void OnAccept(Ptr<Socket> socket, const Address&)
    {
        socket->SetRecvCallback(MakeCallback(&Flow::Read, this));
    }

    void Read(Ptr<Socket> socket)
    {
        for (Ptr<Packet> read = socket->Recv(); read && read->GetSize() > 0; read = socket->Recv())
        {
        }
    }

    void OnData(Ptr<const Packet> packet, const TcpHeader& header, Ptr<const TcpSocketBase>)
    {
        if (packet->GetSize() > 0)
        {
            Tell('d', number, header.GetSequenceNumber().GetValue(), packet->GetSize());
        }
    }

    void OnSent(Ptr<const Packet> packet, const TcpHeader& header, Ptr<const TcpSocketBase>)
    {
        if (packet->GetSize() > 0)
        {
            Tell('s', number, header.GetSequenceNumber().GetValue(), packet->GetSize());
        }
    }

    void OnWindow(uint32_t, uint32_t bytes)
    {
        Tell('w', number, bytes);
    }

    void OnFlight(uint32_t, uint32_t bytes)
    {
        Tell('f', number, bytes);
    }

    void OnRtt(Time, Time smoothed)
    {
        Tell('r', number, uint64_t(smoothed.GetNanoSeconds()));
    }

    void OnRto(Time before, Time after)
    {
        // Nothing but a timeout doubles it (TcpSocketBase::ReTxTimeout).
        if (before > Time(0) && after == before + before)
        {
            Tell('t', number);
        }
    }

    void OnState(TcpSocketState::TcpCongState_t before, TcpSocketState::TcpCongState_t after)
    {
        if ((before == TcpSocketState::CA_RECOVERY) != (after == TcpSocketState::CA_RECOVERY))
        {
            Tell(after == TcpSocketState::CA_RECOVERY ? 'b' : 'e', number);
        }
    }

    void OnAck(SequenceNumber32, SequenceNumber32 acked)
    {
        Tell('a', number, acked.GetValue());
    }

    Ipv4Address m_address;
    Ipv4Address m_source;
    Ptr<Node> m_receiver;
    std::unordered_map<uint16_t, uint64_t> m_sizeByPort;
    Ptr<NetDevice> m_entrance;
    Ptr<Socket> m_socket;
    Ptr<Socket> m_listener;
    uint64_t m_writtenBytes = 0;
    size_t m_next = 0;
    bool m_isOver = false;
};

} // namespace
